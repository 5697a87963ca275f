"""The server: what it streams is what the model draws, for each client alone; what it refuses, it refuses in words."""

import asyncio
import functools
import http.client
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import openai
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from lrm_utils import checkpoints, pretrain, serve
from lrm_utils.models.bpe_and_wordpiece import BYTE_TO_CHAR, train_byte_bpe
from lrm_utils.models.gpt import GPT, generate, greedy, sampler

TEXT = "The gold and the silver of the mines are the wealth of the nation. User: who? Assistant: the people. " * 3
TOKENIZER = train_byte_bpe([TEXT], 300)
END, PAD = TOKENIZER.id("<|endoftext|>"), TOKENIZER.id("<|pad|>")
SOON = 20  # seconds; what is waited for takes milliseconds
SHAPE = dict(D=16, H=2, layers=1, limit=64, dropout=0.0)


class Watched(GPT):
    """A GPT that counts its steps, keeps what it read, and can be slowed down, held up, or made to fail."""

    def __init__(self, script=None, **shape):
        torch.manual_seed(0)
        super().__init__(300, **SHAPE | shape)
        with torch.no_grad():
            self.table.weight.mul_(20)  # so that seeds and temperatures make a difference
        self.script, self.pause, self.fails = script, 0.0, False
        self.gate, self.steps, self.inside, self.most_inside, self.prompts = threading.Event(), 0, 0, 0, []
        self.gate.set()

    def states(self, tokens, caches=None):
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        self.steps += 1
        time.sleep(self.pause)
        assert self.gate.wait(SOON)
        self.inside -= 1
        if self.fails:
            raise RuntimeError("a secret of the server")
        first = not caches[0]
        states = super().states(tokens, caches)
        if first:
            self.last_began = self.steps
            self.prompts.append(tokens[0].tolist())
            caches[0]["read"] = tokens.shape[1]
        self.drawn = caches[0]["k"].shape[2] - caches[0]["read"]
        return states

    def scores(self, states):
        logits = super().scores(states)
        if self.script:  # says these tokens, whatever it reads
            said = self.script[self.drawn % len(self.script)]
            logits = torch.full_like(logits, -100.0).index_fill(-1, torch.tensor(said), 100.0)
        return logits


def letters(text):
    """A text as tokens of one byte each."""
    return [TOKENIZER.id(BYTE_TO_CHAR[byte]) for byte in text.encode()]


@contextmanager
def client(model, **limits):
    """A client of a server that was started for it."""
    with serve.running(serve.create_app(model, TOKENIZER, "tiny", **limits)) as url, connected(url) as found:
        yield found


def connected(url):
    return openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=SOON)


@dataclass
class Answer:
    """What came back over the wire."""

    status: int
    headers: http.client.HTTPMessage
    content: bytes

    def json(self):
        return json.loads(self.content)


def send(found, path, body=None, method="POST", headers=None):
    """A request without the client library, which would refuse to send the worst of them."""
    connection = http.client.HTTPConnection(found.base_url.host, found.base_url.port, timeout=SOON)
    try:
        content = json.dumps(body) if isinstance(body, dict) else body
        path = path if path.startswith("/") else f"/v1/{path}"
        connection.request(method, path, content, {"Content-Type": "application/json"} | (headers or {}))
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def random_model():
    return Watched()


@pytest.fixture(scope="module")
def tiny(random_model):
    with client(random_model, max_tokens=100, max_body=20_000) as found:
        yield found


@pytest.fixture(scope="module")
def scripted():
    """A client, and the model behind it, whose words are given it anew by each test."""
    model = Watched()
    with client(model) as found:
        yield found, model


def expected(model, prompt, length, pick):
    """The text that chapter 9 draws, and whether it came to its end."""
    ids = [int(token) for token in generate(model, torch.tensor([TOKENIZER.encode(prompt)]), length, pick)]
    ended = END in ids
    ids = ids[: ids.index(END)] if ended else ids
    return TOKENIZER.decode(ids, specials=False), "stop" if ended else "length"


def seeded(seed, **options):
    return sampler(torch.Generator().manual_seed(seed), **options)


def say(found, **options):
    """A whole answer to some prompt."""
    return found.completions.create(**dict(model="tiny", prompt="The gold") | options)


def streamed(found, **options):
    """All that a stream brings."""
    return list(say(found, stream=True, **options))


def joined(chunks):
    return "".join(choice.text for chunk in chunks for choice in chunk.choices)


def wait_for(promise):
    """Wait until something is true."""
    end = time.monotonic() + SOON
    while not promise():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(0.005)


def stands_still(model):
    """Whether the model has taken no step for a while."""
    steps = model.steps
    time.sleep(0.2)
    return model.steps == steps


# -------------------------------------------------------------------------------------------------------- what is said


def test_the_model_is_listed_under_its_name(tiny):
    (listed,) = tiny.models.list().data
    assert (listed.id, listed.object) == ("tiny", "model")
    assert tiny.models.retrieve("tiny") == listed
    with pytest.raises(openai.NotFoundError) as missing:
        tiny.models.retrieve("gpt-5")
    assert missing.value.code == "model_not_found"


@pytest.mark.parametrize(
    "asked, pick",
    [
        (dict(temperature=0), greedy),
        (dict(temperature=1e-44), greedy),
        (dict(top_p=0), greedy),
        (dict(seed=7), seeded(7)),
        (dict(seed=8), seeded(8)),
        (dict(seed=7, temperature=0.5), seeded(7, temperature=0.5)),
        (dict(seed=7, top_p=0.3), seeded(7, top_p=0.3)),
        (dict(seed=7, temperature=0.5, top_p=0.9), seeded(7, temperature=0.5, top_p=0.9)),
    ],
)
def test_an_answer_is_what_generate_draws_with_the_same_settings(tiny, random_model, asked, pick):
    text, reason = expected(random_model, "The gold", 30, pick)
    whole = say(tiny, max_tokens=30, **asked)
    assert (whole.choices[0].text, whole.choices[0].finish_reason) == (text, reason)
    assert joined(streamed(tiny, max_tokens=30, **asked)) == text


def test_settings_that_should_change_the_text_do(tiny):
    """Else the test above could pass with any of them ignored."""
    asked = [
        {},
        dict(seed=7),
        dict(seed=8),
        dict(seed=7, temperature=0.5),
        dict(seed=7, top_p=0.3),
        dict(temperature=0),
    ]
    texts = {say(tiny, max_tokens=30, **a).choices[0].text for a in [*asked, {}]}
    assert len(texts) == 7, "and without a seed no two are alike"


@pytest.mark.parametrize("seed", [-1, 0, 2**63, 2**64, -(2**70)])
def test_any_whole_number_is_a_seed(tiny, seed):
    assert say(tiny, seed=seed).choices[0].text == say(tiny, seed=seed).choices[0].text


def test_the_prompt_may_be_a_list_of_one(tiny):
    assert say(tiny, prompt=["The gold"], seed=1).choices == say(tiny, seed=1).choices


def test_a_special_token_in_a_prompt_is_plain_text(tiny):
    assert say(tiny, prompt="<|endoftext|>", max_tokens=1).usage.prompt_tokens > 5


def test_usage_counts_the_tokens_of_the_prompt_and_those_drawn(tiny):
    usage = say(tiny, max_tokens=5, seed=1).usage
    read = len(TOKENIZER.encode("The gold"))
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (read, 5, read + 5)


def test_a_stream_has_one_id_and_one_reason_and_usage_at_its_end_if_asked_for(tiny):
    options = dict(max_tokens=9, seed=1)
    chunks = streamed(tiny, stream_options={"include_usage": True}, **options)
    whole = say(tiny, **options)
    assert joined(chunks) == whole.choices[0].text
    assert len({chunk.id for chunk in chunks}) == 1 and chunks[0].id != whole.id
    assert {chunk.object for chunk in chunks} == {"text_completion"}
    *before, last, usage = chunks
    assert [c.choices[0].finish_reason for c in before] == [None] * len(before)
    assert last.choices[0].finish_reason == "length"
    assert usage.choices == [] and usage.usage == whole.usage
    assert all(chunk.usage is None and "usage" in chunk.model_fields_set for chunk in [*before, last])
    assert len(streamed(tiny, **options)) == len(chunks) - 1


def test_a_stream_is_server_sent_events_in_ascii_up_to_done():
    with client(Watched(letters("a\u2028é"))) as found:
        body = {"model": "tiny", "prompt": "x", "stream": True, "max_tokens": 6}
        answer = send(found, "completions", body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    *lines, done, empty = answer.content.decode("ascii").split("\n\n")
    assert (done, empty) == ("data: [DONE]", "")
    parts = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert all(line.startswith("data: {") for line in lines)
    assert "".join(part["choices"][0]["text"] for part in parts) == "a\u2028é"
    assert all("usage" not in part for part in parts)


def test_an_answer_comes_piece_by_piece_while_the_model_still_writes():
    model = Watched(letters("abc"))
    model.pause = 0.02
    with client(model) as found:
        stream = iter(say(found, max_tokens=60, stream=True))
        assert next(stream).choices[0].text == "a"
        assert model.steps < 60
        assert joined(stream) == ("abc" * 20)[1:]


def test_the_default_lengths_are_those_of_the_api_within_the_servers(tiny):
    assert say(tiny, temperature=0).usage.completion_tokens == 16
    with client(Watched(letters("a")), max_tokens=5) as found:
        assert say(found).usage.completion_tokens == 5
    with client(Watched(letters("a")), max_tokens=40) as found:
        turns = [{"role": "user", "content": "Hi"}]
        create = functools.partial(found.chat.completions.create, model="tiny", messages=turns)
        assert create().usage.completion_tokens == 40
        assert create(max_tokens=3).usage.completion_tokens == 3
        assert create(max_completion_tokens=2).usage.completion_tokens == 2


def test_an_answer_may_be_longer_than_the_memory_of_the_model(tiny, random_model):
    text, _ = expected(random_model, "The gold", 100, greedy)
    assert say(tiny, max_tokens=100, temperature=0).choices[0].text == text


def test_a_prompt_may_fill_the_whole_memory(tiny):
    prompt = "Q" * 64
    assert len(TOKENIZER.encode(prompt)) == 64
    assert say(tiny, prompt=prompt, max_tokens=3, temperature=0).usage.prompt_tokens == 64


# --------------------------------------------------------------------------------------------- characters, stops, ends


def test_a_character_that_is_split_between_tokens_arrives_whole():
    text = "naïve 🙂 日本\u2028"
    with client(Watched([*letters(text), END])) as found:
        chunks = streamed(found, max_tokens=50)
    assert joined(chunks) == text
    assert "�" not in joined(chunks) and all("�" not in c.choices[0].text for c in chunks)


def test_half_a_character_at_the_very_end_is_marked_as_in_decode():
    script = letters("ab🙂")[:4]
    with client(Watched(script)) as found:
        assert say(found, max_tokens=4).choices[0].text == TOKENIZER.decode(script) == "ab�"
        assert joined(streamed(found, max_tokens=4)) == "ab�"


def test_the_end_of_a_text_ends_the_answer_and_signals_are_not_shown():
    with client(Watched([*letters("ab"), PAD, *letters("c"), END])) as found:
        whole = say(found, max_tokens=50)
        assert joined(streamed(found, max_tokens=50)) == whole.choices[0].text == "abc"
        assert whole.choices[0].finish_reason == "stop"
        assert whole.usage.completion_tokens == 5
        assert say(found, max_tokens=4).choices[0].finish_reason == "length"
        assert say(found, max_tokens=5).choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    "stop, shown, reason",
    [
        ("gold", "The ", "stop"),
        (["nothing", "gold"], "The ", "stop"),
        (["gold", "The gold"], "", "stop"),
        (["ld", "gold is not"], "The go", "stop"),
        ("and", "The gold ", "stop"),
        ("gold and a half", "The gold and", "length"),
        ("🙂", "The gold and", "length"),
        ([], "The gold and", "length"),
        (None, "The gold and", "length"),
    ],
)
@pytest.mark.parametrize("script", [letters("The gold and"), TOKENIZER.encode("The gold and")], ids=["bytes", "tokens"])
def test_nothing_of_a_stop_string_is_shown_however_it_is_cut_into_tokens(scripted, script, stop, shown, reason):
    assert len(script) != 12 or script == letters("The gold and")
    found, model = scripted
    model.script = script
    whole = say(found, max_tokens=len(script), stop=stop)
    chunks = streamed(found, max_tokens=len(script), stop=stop)
    assert (whole.choices[0].text, whole.choices[0].finish_reason) == (shown, reason)
    assert (joined(chunks), chunks[-1].choices[0].finish_reason) == (shown, reason)


def test_the_model_draws_no_more_once_a_stop_string_is_complete():
    model = Watched(letters("ab\ncd"))
    with client(model) as found:
        answer = say(found, stop="\n", max_tokens=50)
        assert answer.choices[0].text == "ab"
        assert model.steps == answer.usage.completion_tokens == 3, "what was drawn is counted, shown or not"


def letter_by_letter(text, stops):
    """What may be shown if letters come one by one: all before the stop string that is complete first."""
    for end in range(len(text) + 1):
        if hits := [end - len(stop) for stop in stops if text[:end].endswith(stop)]:
            return text[: min(hits)], True
    return text, False


@example([b"ab\n!"], ["ab\n!", "b"])
@example([b"ab"], ["ab", "b"])
@given(
    st.lists(st.binary(max_size=4) | st.sampled_from(["ab", "a", "é", "🙂", "ba\n"]).map(str.encode), max_size=12),
    st.lists(st.text("abé🙂\n�", min_size=1, max_size=4), max_size=3),
)
def test_what_is_shown_does_not_depend_on_where_the_tokens_are_cut(pieces, stops):
    text, stopped = letter_by_letter(b"".join(pieces).decode(errors="replace"), stops)
    visible, shown = serve.Visible(stops), ""
    for piece in [*pieces, None]:
        shown += visible.add(piece or b"", last=piece is None)
        assert text.startswith(shown)
        if visible.stopped:
            break
    assert (shown, visible.stopped) == (text, stopped)


def test_text_that_can_be_no_part_of_a_stop_string_is_not_kept_back():
    visible = serve.Visible(["User:"])
    assert [visible.add(piece) for piece in (b"a", b"U", b"s", b"a", b"Use", b"Us", b"er:")] == [
        "a",
        "",
        "",
        "Usa",
        "",
        "Use",
        "",
    ]


# -------------------------------------------------------------------------------------------------------- conversation


def ask(found, *turns, **options):
    roles = ["system", "user", "assistant", "user"] if len(turns) == 4 else ["user"]
    messages = [{"role": role, "content": content} for role, content in zip(roles, turns, strict=True)]
    return found.chat.completions.create(model="tiny", messages=messages, **options)


def test_a_conversation_is_laid_out_as_text_and_ends_before_the_users_next_turn():
    model = Watched(letters(" Gold.\nAnd silver.\nUser: more"), limit=200)
    with client(model) as found:
        whole = ask(found, "Be brief.", "Hi", " Hello. ", "What?")
        chunks = list(ask(found, "Hi", stream=True, stream_options={"include_usage": True}))
    system, short = (TOKENIZER.decode(prompt) for prompt in model.prompts)
    assert system == "System: Be brief.\nUser: Hi\nAssistant: Hello.\nUser: What?\nAssistant:"
    assert short == "User: Hi\nAssistant:"
    message, reason = whole.choices[0].message, whole.choices[0].finish_reason
    assert (message.role, message.content, reason) == ("assistant", "Gold.\nAnd silver.", "stop")
    assert whole.object == "chat.completion" and {c.object for c in chunks} == {"chat.completion.chunk"}
    first, *middle, last, usage = chunks
    assert (first.choices[0].delta.role, first.choices[0].delta.content) == ("assistant", "")
    assert "".join(c.choices[0].delta.content for c in middle) == message.content
    assert last.choices[0].finish_reason == "stop" and last.choices[0].delta.content is None
    assert usage.usage.prompt_tokens == len(TOKENIZER.encode(short))


@pytest.mark.parametrize(
    "script, stop, content",
    [
        ("User: me", None, ""),
        (" User: me", None, ""),
        ("\n\n  so \nUser:", None, "so "),
        (" a. b", ".", "a"),
        ("\nUser", None, "User\nUser\nUs"),
        ("\nab", "\n", ""),
    ],
)
def test_stops_of_the_client_and_of_the_conversation_hold_together(scripted, script, stop, content):
    found, model = scripted
    model.script = letters(script)
    answer = ask(found, "Hi", stop=stop, max_tokens=13).choices[0]
    chunks = ask(found, "Hi", stop=stop, max_tokens=13, stream=True)
    assert answer.message.content == content
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == content


# ------------------------------------------------------------------------------------------------------------- refusals

PLAIN = {"model": "tiny", "prompt": "x"}
TALK = {"model": "tiny", "messages": [{"role": "user", "content": "x"}]}


@pytest.mark.parametrize(
    "path, body, status, param, code, said",
    [
        ("completions", b"{", 400, None, None, "JSON"),
        ("completions", b"", 400, None, None, "JSON"),
        ("completions", b"\xff\xfe", 400, None, None, "JSON"),
        ("completions", b"[1]", 400, None, None, "JSON object"),
        ("completions", b"null", 400, None, None, "JSON object"),
        ("completions", b"[" * 9_999, 400, None, None, "JSON"),
        ("completions", b'{"model": "tiny", "prompt": "\\ud800"}', 400, None, None, "JSON"),
        ("completions", b'{"model": "tiny", "prompt": "x", "temperature": NaN}', 400, "temperature", None, "finite"),
        ("completions", b'{"model": "tiny", "prompt": "x", "seed": 1e400}', 400, "seed", None, "integer"),
        ("completions", {"prompt": "x"}, 400, "model", None, "required"),
        ("completions", {"model": "tiny"}, 400, "prompt", None, "required"),
        ("completions", PLAIN | {"prompt": ""}, 400, "prompt", None, "at least 1"),
        ("completions", PLAIN | {"prompt": None}, 400, "prompt", None, "required"),
        ("completions", PLAIN | {"prompt": []}, 400, "prompt", None, "at least 1"),
        ("completions", PLAIN | {"prompt": ["a", "b"]}, 400, "prompt", None, "at most 1"),
        ("completions", PLAIN | {"prompt": [1, 2]}, 400, "prompt", None, "string"),
        ("completions", PLAIN | {"prompt": "Q" * 65}, 400, "prompt", "context_length_exceeded", "64"),
        ("completions", PLAIN | {"prompt": "Q" * 9_999}, 400, "prompt", "context_length_exceeded", "64"),
        ("completions", PLAIN | {"model": "gpt-5"}, 404, None, "model_not_found", "there is: tiny"),
        ("completions", PLAIN | {"temperature": -0.1}, 400, "temperature", None, "greater than or equal to 0"),
        ("completions", PLAIN | {"temperature": 2.1}, 400, "temperature", None, "less than or equal to 2"),
        ("completions", PLAIN | {"temperature": "1"}, 400, "temperature", None, "number"),
        ("completions", PLAIN | {"temperature": True}, 400, "temperature", None, "number"),
        ("completions", PLAIN | {"top_p": -1}, 400, "top_p", None, "greater than or equal to 0"),
        ("completions", PLAIN | {"top_p": 1.5}, 400, "top_p", None, "less than or equal to 1"),
        ("completions", PLAIN | {"max_tokens": 0}, 400, "max_tokens", None, "greater than or equal to 1"),
        ("completions", PLAIN | {"max_tokens": 101}, 400, "max_tokens", None, "100 at most"),
        ("completions", PLAIN | {"max_tokens": 10**30}, 400, "max_tokens", None, "100 at most"),
        ("completions", PLAIN | {"max_tokens": 2.5}, 400, "max_tokens", None, "integer"),
        ("completions", PLAIN | {"seed": "x"}, 400, "seed", None, "integer"),
        ("completions", PLAIN | {"n": 2}, 400, "n", None, "less than or equal to 1"),
        ("completions", PLAIN | {"n": True}, 400, "n", None, "integer"),
        ("completions", PLAIN | {"stop": ""}, 400, "stop", None, "at least 1"),
        ("completions", PLAIN | {"stop": ["a", ""]}, 400, "stop", None, "at least 1"),
        ("completions", PLAIN | {"stop": 5}, 400, "stop", None, "array"),
        ("completions", PLAIN | {"stop": [5]}, 400, "stop", None, "string"),
        ("completions", PLAIN | {"stop": list("abcde")}, 400, "stop", None, "at most 4"),
        ("completions", PLAIN | {"stream": "yes"}, 400, "stream", None, "boolean"),
        ("completions", PLAIN | {"stream_options": {"include_usage": True}}, 400, "stream_options", None, "stream"),
        ("completions", PLAIN | {"stream": True, "stream_options": 5}, 400, "stream_options", None, "object"),
        ("completions", PLAIN | {"logprobs": 3}, 400, "logprobs", "unsupported_parameter", "leave it out"),
        ("completions", PLAIN | {"logprobs": 0}, 400, "logprobs", "unsupported_parameter", "leave it out"),
        ("completions", PLAIN | {"stream": True, "prompt": ""}, 400, "prompt", None, "at least 1"),
        ("completions", PLAIN | {"stream": True, "prompt": "Q" * 65}, 400, "prompt", "context_length_exceeded", "64"),
        ("chat/completions", {"model": "tiny"}, 400, "messages", None, "required"),
        ("chat/completions", TALK | {"messages": []}, 400, "messages", None, "at least 1"),
        ("chat/completions", TALK | {"messages": "Hi"}, 400, "messages", None, "array"),
        ("chat/completions", TALK | {"messages": ["Hi"]}, 400, "messages", None, "messages.0"),
        ("chat/completions", TALK | {"messages": [{"role": "user"}]}, 400, "messages", None, "messages.0.content"),
        ("chat/completions", TALK | {"messages": [{"role": "judge", "content": "x"}]}, 400, "messages", None, "'user'"),
        ("chat/completions", TALK | {"messages": [{"role": "user", "content": []}]}, 400, "messages", None, "string"),
        (
            "chat/completions",
            TALK | {"messages": [{"role": "user", "content": "Q" * 60}]},
            400,
            "messages",
            "context_length_exceeded",
            "64",
        ),
        ("chat/completions", TALK | {"tools": [{}]}, 400, "tools", "unsupported_parameter", "leave it out"),
        ("chat/completions", TALK | {"model": "gpt-5"}, 404, None, "model_not_found", "there is: tiny"),
        ("chat/completions", TALK | {"max_completion_tokens": 0}, 400, "max_completion_tokens", None, "equal to 1"),
        ("chat/completions", TALK | {"max_completion_tokens": 101}, 400, "max_completion_tokens", None, "100 at most"),
        ("completions", PLAIN | {"prompt": "x" * 20_000}, 413, None, "request_too_large", "more than 20,000 bytes"),
        ("completions", b" " * 5_000_000, 413, None, "request_too_large", "more than 20,000 bytes"),
        ("nothing", PLAIN, 404, None, None, "/v1/chat/completions"),
        ("completions/", PLAIN, 404, None, None, "/v1/chat/completions"),
    ],
)
def test_a_bad_request_is_refused_in_the_shape_of_the_api(tiny, random_model, path, body, status, param, code, said):
    before = random_model.steps
    answer = send(tiny, path, body)
    assert answer.status == status
    (error,) = answer.json().values()
    assert answer.json().keys() == {"error"} and error.keys() == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error"
    assert (error["param"], error["code"]) == (param, code)
    assert said in error["message"], error["message"]
    assert random_model.steps == before, "no step is wasted on it"


@pytest.mark.parametrize("method, path, allowed", [("GET", "completions", "POST"), ("POST", "models", "GET")])
def test_a_wrong_method_is_refused_with_the_right_one(tiny, method, path, allowed):
    answer = send(tiny, path, method=method)
    assert (answer.status, answer.headers["allow"]) == (405, allowed)
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_body_without_a_stated_length_is_measured_too(tiny):
    assert send(tiny, "completions", iter([b" " * 15_000] * 2)).status == 413


def test_a_client_that_sends_all_before_it_reads_learns_that_its_body_is_too_long(tiny):
    assert send(tiny, "completions", b" " * 30_000_000).status == 413


def test_a_body_that_is_too_long_takes_no_memory(tiny):
    block = b" " * 65_536
    tracemalloc.start()
    try:
        assert send(tiny, "completions", (block for _ in range(500))).status == 413
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_the_client_library_raises_what_it_raises_for_the_real_service(tiny):
    with pytest.raises(openai.NotFoundError) as missing:
        say(tiny, model="gpt-5")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        say(tiny, prompt="Q" * 65, stream=True)
    assert (long.value.code, long.value.param) == ("context_length_exceeded", "prompt")
    with pytest.raises(openai.BadRequestError):
        say(tiny, temperature=-1)


def test_nulls_count_as_left_out_and_what_changes_no_text_is_allowed(tiny):
    nulls = dict.fromkeys(["max_tokens", "temperature", "top_p", "stop", "stream", "n", "logprobs", "stream_options"])
    body = PLAIN | nulls | {"seed": 1, "user": "me", "frequency_penalty": 0.0, "echo": False, "logit_bias": {}}
    body |= {"best_of": 1, "response_format": {"type": "text"}, "tool_choice": "none", "parallel_tool_calls": True}
    answer = send(tiny, "completions", body)
    assert answer.json()["choices"][0]["text"] == say(tiny, prompt="x", seed=1).choices[0].text


def test_no_page_of_the_server_asks_another_host(tiny):
    pages = ("/docs", "/redoc", "/openapi.json", "/v1/models")
    assert [send(tiny, page, method="GET").status for page in pages] == [404, 404, 404, 200]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
def test_a_page_of_another_site_cannot_ask_on_its_own(tiny, random_model, kind):
    """A browser lets any page send these types; for JSON it asks the server first, which knows of no other sites."""
    before = random_model.steps
    assert send(tiny, "completions", PLAIN, headers={"Content-Type": kind}).status == 415
    assert random_model.steps == before
    assert send(tiny, "completions", PLAIN, headers={"Content-Type": "Application/JSON; charset=utf-8"}).status == 200
    assert send(tiny, "completions", method="OPTIONS").status == 405


# -------------------------------------------------------------------------------------------------------- many clients


def test_32_streams_at_a_time_all_finish_and_none_is_mixed_up():
    model = Watched()
    wanted = {seed: expected(model, f"The gold {seed}", 20, seeded(seed)) for seed in range(32)}
    assert len(set(wanted.values())) == 32, "else an exchange would go unseen"
    model.prompts.clear()
    model.pause, model.steps = 0.005, 0

    async def one(found, seed):
        options = dict(model="tiny", prompt=f"The gold {seed}", max_tokens=20, seed=seed)
        text, ids = "", set()
        async for chunk in await found.completions.create(stream=True, **options):
            text += chunk.choices[0].text
            ids.add(chunk.id)
            reason = chunk.choices[0].finish_reason
        return seed, (text, reason), ids

    async def all_of_them(url):
        async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=SOON) as found:
            return await asyncio.gather(*(one(found, seed) for seed in wanted))

    with serve.running(serve.create_app(model, TOKENIZER, "tiny")) as url:
        answers = asyncio.run(all_of_them(url))
    assert {seed: answer for seed, answer, _ in answers} == wanted
    assert len({i for *_, ids in answers for i in ids}) == 32 and all(len(ids) == 1 for *_, ids in answers)
    assert len(model.prompts) == 32 and model.most_inside == 1
    assert model.last_began < model.steps / 2, "all were there at once"


def test_steps_are_taken_one_at_a_time_and_a_short_answer_does_not_wait_for_a_long_one():
    model = Watched(letters("abc"))
    model.pause = 0.005
    with client(model, max_tokens=1000) as found:
        long = iter(say(found, max_tokens=1000, stream=True))
        next(long)
        assert say(found, max_tokens=3).choices[0].text == "abc"
        assert model.steps < 500 and model.most_inside == 1


def test_the_server_answers_while_the_model_is_at_work():
    model = Watched(letters("abc"))
    model.gate.clear()
    with client(model) as found:
        thread = threading.Thread(target=say, args=(found,))
        thread.start()
        try:
            wait_for(lambda: model.inside)
            assert found.with_options(timeout=3).models.list().data[0].id == "tiny"
            assert model.inside
        finally:
            model.gate.set()
            thread.join()


@contextmanager
def raw(found, path, body):
    """A connection on which a request was sent, and nothing is read."""
    content = json.dumps(body)
    head = f"POST /v1/{path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    with socket.create_connection((found.base_url.host, found.base_url.port)) as connection:
        connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n{content}".encode())
        yield connection


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path, body", [("completions", PLAIN), ("chat/completions", TALK)])
def test_a_client_that_goes_away_frees_its_place_and_the_model(stream, path, body):
    model = Watched(letters("abc"))
    model.pause = 0.002
    with client(model, max_at_once=1, max_tokens=10**6) as found:
        with raw(found, path, body | {"stream": stream, "max_tokens": 10**6}):
            wait_for(lambda: model.steps > 3)
            with pytest.raises(openai.RateLimitError):
                say(found, max_tokens=3)
            taken = model.steps
        wait_for(lambda: stands_still(model))
        assert model.steps - taken < 100, "of the million that it had asked for"
        assert say(found, max_tokens=3).choices[0].text == "abc"


def test_one_who_goes_away_while_others_are_before_it_costs_no_step():
    model = Watched(letters("abc"))
    model.gate.clear()
    with client(model, max_tokens=1000) as found:
        waiting = functools.partial(raw, found, "completions", PLAIN | {"max_tokens": 1000})
        with waiting():
            wait_for(lambda: model.inside)
            with waiting(), waiting():
                pass
            assert found.models.list(), "the server has seen them go"
        model.gate.set()
        wait_for(lambda: stands_still(model))
        assert model.steps <= 3


def test_a_client_that_does_not_read_loses_its_place_in_time(monkeypatch):
    monkeypatch.setattr(serve, "PATIENCE", 0.3)
    model = Watched(letters("abc"))
    asked = {"model": "x" * 30_000, "prompt": "x", "max_tokens": 2000}  # its name stands in every part: they are long
    app = serve.create_app(model, TOKENIZER, asked["model"], max_at_once=1, max_tokens=2000)
    with serve.running(app) as url, connected(url) as found, raw(found, "completions", asked | {"stream": True}):
        wait_for(lambda: model.steps > 3)
        assert send(found, "completions", asked).status == 429
        wait_for(lambda: send(found, "completions", asked | {"max_tokens": 3}).status == 200)
        assert model.steps < 2000, "it was broken off"


def test_a_body_that_does_not_come_is_not_waited_for(tiny, monkeypatch):
    monkeypatch.setattr(serve, "PATIENCE", 0.3)
    with socket.create_connection((tiny.base_url.host, tiny.base_url.port), timeout=SOON) as connection:
        head = "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(99).startswith(b"HTTP/1.1 408")


def test_what_is_sent_behind_a_request_is_not_kept():
    """While a long answer is written, its client sends on, and only as much is read as fits a buffer or two."""
    model = Watched(letters("abc"))
    model.pause = 0.002
    with (
        client(model, max_tokens=10**6) as found,
        raw(found, "completions", PLAIN | {"max_tokens": 10**6}) as connection,
    ):
        wait_for(lambda: model.steps > 3)
        connection.setblocking(False)
        sent, end = 0, time.monotonic() + 1
        while time.monotonic() < end:
            try:
                sent += connection.send(b" " * 65_536)
            except BlockingIOError:
                time.sleep(0.005)
        assert sent < 16_000_000


def test_those_who_stay_lose_nothing_by_those_who_go():
    model = Watched()
    wanted = {seed: expected(model, "The gold", 40, seeded(seed))[0] for seed in range(4)}
    model.pause, texts = 0.001, {}
    with client(model) as found:

        def stay(seed):
            texts[seed] = joined(streamed(found, max_tokens=40, seed=seed))

        threads = [threading.Thread(target=stay, args=(seed,)) for seed in wanted]
        for thread in threads:
            thread.start()
            with raw(found, "completions", PLAIN | {"stream": True, "max_tokens": 200}):
                pass
        for thread in threads:
            thread.join()
    assert texts == wanted


def test_a_stream_that_is_closed_early_stops_the_model():
    model = Watched(letters("abc"))
    model.pause = 0.002
    with client(model, max_tokens=10**6) as found:
        with say(found, max_tokens=10**6, stream=True) as stream:
            assert next(iter(stream)).choices[0].text == "a"
        wait_for(lambda: stands_still(model))
        assert model.steps < 200


def test_more_than_may_wait_are_sent_away_until_there_is_room():
    model = Watched(letters("abc"))
    model.gate.clear()
    with client(model, max_at_once=2) as found:
        patient = found.with_options(max_retries=9)  # a probe below may be in the way
        threads = [threading.Thread(target=say, args=(patient,)) for _ in range(2)]
        answers = []
        try:
            for thread in threads:
                thread.start()

            def full():
                answers.append(send(found, "completions", PLAIN | {"prompt": ""}))
                return answers[-1].status == 429

            wait_for(full)
            assert answers[-1].headers["retry-after"] == "1"
            assert answers[-1].json()["error"]["type"] == "requests"
            assert answers[-1].json()["error"]["code"] == "rate_limit_exceeded"
            assert found.models.list(), "a question that costs nothing is answered"
        finally:
            model.gate.set()
            for thread in threads:
                thread.join()
        assert say(found, max_tokens=3).choices[0].text == "abc"


def test_every_way_to_end_gives_the_place_back():
    model = Watched(letters("abc"))
    with client(model, max_at_once=1) as found:
        for _ in range(3):
            say(found)
            streamed(found)
            for bad in ({"prompt": ""}, {"prompt": "Q" * 65}, {"model": "gpt-5"}, {"prompt": "x" * 70_000}):
                with pytest.raises(openai.APIStatusError) as refused:
                    say(found, **bad)
                assert refused.value.status_code != 429
            model.fails = True
            with pytest.raises(openai.InternalServerError):
                say(found)
            with pytest.raises(openai.APIError):
                streamed(found)
            model.fails = False


def test_a_fault_of_the_server_is_told_without_its_secrets_and_survived():
    model = Watched(letters("abc"))
    with client(model) as found:
        model.fails = True
        answer = send(found, "completions", PLAIN)
        assert answer.status == 500 and b"secret" not in answer.content
        assert answer.json()["error"]["type"] == "server_error"
        model.fails = False
        chunks = iter(say(found, stream=True))
        assert next(chunks).choices[0].text == "a"
        model.fails = True
        with pytest.raises(openai.APIError, match="the server failed") as broken:
            list(chunks)
        assert "secret" not in str(broken.value)
        model.fails = False
        assert say(found, max_tokens=3).choices[0].text == "abc"


# ----------------------------------------------------------------------------------------------------- start and stop


def test_a_server_stops_with_its_block_even_while_it_writes_and_can_be_started_again(caplog):
    model = Watched(letters("abc"))
    model.pause = 0.002
    app = serve.create_app(model, TOKENIZER, "tiny", max_tokens=10**6)
    for _ in range(2):
        before = threading.active_count()
        with serve.running(app) as url:
            found = connected(url)
            stream = iter(say(found, max_tokens=10**6, stream=True))
            next(stream)
            start = time.monotonic()
        assert time.monotonic() - start < 10
        with pytest.raises(openai.APIError, match="the server is being stopped"):
            list(stream)
        assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
        assert threading.active_count() == before
        steps = model.steps
        with pytest.raises(openai.APIConnectionError):
            found.models.list()
        assert model.steps == steps
        found.close()


def test_an_error_inside_the_block_stops_the_server_too():
    with pytest.raises(ZeroDivisionError), serve.running(serve.create_app(Watched(), TOKENIZER, "tiny")) as url:
        raise ZeroDivisionError
    with connected(url) as found, pytest.raises(openai.APIConnectionError):
        found.models.list()


def test_a_server_beside_a_notebook_listens_to_its_own_machine_alone(tiny):
    assert tiny.base_url.host == "127.0.0.1"
    with pytest.raises(OSError), socket.create_connection(("127.0.0.2", tiny.base_url.port), timeout=3):
        pass


def test_a_tokenizer_of_another_size_is_refused():
    with pytest.raises(ValueError, match="the tokenizer has 290 tokens, the model 300"):
        serve.create_app(Watched(), train_byte_bpe([TEXT], 290), "tiny")


@pytest.mark.parametrize("limit", ["max_tokens", "max_at_once", "max_body"])
def test_limits_that_let_nothing_through_are_refused(limit):
    with pytest.raises(ValueError, match="must be 1 or more"):
        serve.create_app(Watched(), TOKENIZER, "tiny", **{limit: 0})


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A checkpoint in place of the shipped one."""
    model = GPT(300, **SHAPE)
    card = {"name": "gpt", "command": "", "settings": {k: SHAPE[k] for k in ("D", "H", "layers", "limit")}}
    pretrain.write("gpt", pretrain.pack("gpt", model), TOKENIZER, card, tmp_path)
    monkeypatch.setattr(serve.checkpoints, "load", functools.partial(checkpoints.load, folder=tmp_path))
    return checkpoints.load("gpt")


def command(monkeypatch, *argv):
    """What the command would serve, and where."""
    started = {}

    def server_of(app, **options):
        started.update(app=app, **options)
        return SimpleNamespace(run=lambda: None)

    with monkeypatch.context() as patched:
        patched.setattr(serve, "server_of", server_of)
        patched.setattr(sys, "argv", ["serve", *argv])
        serve.main()
    return started


def test_the_command_serves_the_checkpoint_to_this_machine_alone(stored, monkeypatch):
    started = command(monkeypatch, "--max-tokens=7")
    assert (started["host"], started["port"]) == ("127.0.0.1", 8000)
    model = GPT(300, **SHAPE)
    model.load_state_dict(stored.weights)
    text, _ = expected(model, "The gold", 7, greedy)
    with serve.running(started["app"]) as url:
        found = connected(url)
        assert found.models.list().data[0].id == "gpt"
        assert say(found, model="gpt", temperature=0).choices[0].text == text
        with pytest.raises(openai.BadRequestError, match="7 at most"):
            say(found, model="gpt", max_tokens=8)


SERVED = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
from lrm_utils import serve
from lrm_utils.models.bpe_and_wordpiece import train_byte_bpe
from lrm_utils.models.gpt import GPT
serve.shipped = lambda name: (GPT(300, D=16, H=2, layers=1, limit=64), train_byte_bpe([{TEXT!r}], 300))
serve.main()
"""


def test_control_c_ends_the_command_at_once_and_quietly_while_it_writes():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    options = dict(stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    command = [sys.executable, "-c", SERVED.strip(), f"--port={port}", "--max-tokens=1000000"]
    with subprocess.Popen(command, **options) as process, connected(f"http://127.0.0.1:{port}/v1") as found:
        try:
            wait_for(lambda: process.poll() is not None or listens(port))
            stream = say(found, model="gpt", max_tokens=10**6, stream=True)
            next(iter(stream))
            process.send_signal(signal.SIGINT)
            with pytest.raises(openai.APIError, match="the server is being stopped"):
                list(stream)
            said = process.communicate(timeout=SOON)[1]
        finally:
            process.kill()
    assert process.returncode == 0 and "Traceback" not in said


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize("missing", ["fastapi", "uvicorn"])
def test_what_the_server_needs_is_named_where_it_is_missing(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=rf"{missing}.*pip install 'lrm-utils\[serve\]'"):
        runpy.run_path(serve.__file__)


def test_the_command_serves_where_it_is_told(stored, monkeypatch):
    started = command(monkeypatch, "--host=0.0.0.0", "--port=9")
    assert (started["host"], started["port"]) == ("0.0.0.0", 9)


def test_the_command_says_in_a_line_why_it_cannot_serve(stored, monkeypatch):
    with pytest.raises(SystemExit, match="there is no checkpoint 'other'; there are: gpt"):
        command(monkeypatch, "--model=other")
    monkeypatch.undo()
    with pytest.raises(SystemExit, match="awd-lstm is no GPT"):
        command(monkeypatch, "--model=awd-lstm")
