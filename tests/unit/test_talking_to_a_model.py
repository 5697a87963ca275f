"""Talking to a model: the loop ends and forgets as it says; tuning sees answers alone; a picture arrives whole."""

import base64
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import openai
import pytest
import torch
from torch.nn import functional as F

from lrm_utils import serve
from lrm_utils.models.bpe_and_wordpiece import train_byte_bpe
from lrm_utils.models.gpt import GPT
from lrm_utils.models.talking_to_a_model import (
    agreement,
    answer_loss,
    answered,
    connect,
    converse,
    cost,
    examples,
    picture,
    pieces,
    resampled,
)

TOKENIZER = train_byte_bpe(
    ["Who was president? User: Assistant: Abraham Lincoln of the gold and the silver. " * 3], 300
)
END = TOKENIZER.id("<|endoftext|>")
PNG = b"\x89PNG\r\n\x1a\n and so on"


@pytest.fixture(scope="module")
def client():
    """A client of a server with an untrained model that reads 64 tokens."""
    torch.manual_seed(0)
    model = GPT(300, D=16, H=2, layers=1, limit=64, dropout=0.0)
    app = serve.create_app(model, TOKENIZER, "tiny")
    with serve.running(app) as url, openai.OpenAI(base_url=url, api_key="none", max_retries=0) as found:
        yield found


@contextmanager
def stand_in(answers):
    """A service of pictures on this machine: what it was asked, and how to reach it."""
    asked = []

    class Service(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.reply(*answers(asked[-1][1], self.server.server_address[1]))

        def do_GET(self):
            asked.append((self.path, None))
            self.reply(200, PNG)

        def reply(self, status, body):
            body = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as found:
            yield found, asked
    finally:
        server.shutdown()
        server.server_close()


def scripted(*lines):
    lines = iter(lines)
    return lambda prompt: next(lines)


# ------------------------------------------------------------------------------------------------------ whom we talk to


def test_without_a_key_we_talk_to_the_server_at_hand():
    for environment in ({}, {"OPENAI_API_KEY": ""}, {"OPENAI_BASE_URL": "http://elsewhere/v1"}):
        client, name = connect("http://127.0.0.1:9/v1", "tiny", environment)
        assert (str(client.base_url), name) == ("http://127.0.0.1:9/v1/", "tiny")


def test_with_a_key_we_talk_to_the_hosted_service_and_print_no_key(monkeypatch, capsys):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    client, name = connect("http://127.0.0.1:9/v1", "tiny", {"OPENAI_API_KEY": "secret", "LRM_CHAT_MODEL": "large"})
    assert client.base_url.host == "api.openai.com" and name == "large" and client.api_key == "secret"
    assert "secret" not in repr(client) + capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------------ the loop


@pytest.mark.parametrize("last", ["q", "Q", "  q  "])
def test_the_loop_ends_with_q_and_remembers_what_was_said(client, last):
    shown = []
    talk = converse(client, "tiny", scripted("Hi", "And?", last), shown.append, max_completion_tokens=3, seed=1)
    assert [m["role"] for m in talk] == ["user", "assistant"] * 2
    assert [m["content"] for m in talk[::2]] == ["Hi", "And?"]
    assert "".join(shown) == "".join(m["content"] + " […]" for m in talk[1::2]), "both were cut, and it is shown"


def test_an_empty_line_asks_nothing(client):
    assert converse(client, "tiny", scripted("", "   ", "q"), lambda piece: None) == []


def test_what_is_said_is_printed_when_nothing_else_is_asked_for(client, capsys):
    talk = converse(client, "tiny", scripted("Hi", "q"), max_completion_tokens=5, seed=1)
    assert capsys.readouterr().out == talk[1]["content"] + " […]"


def test_the_server_is_sent_all_that_was_said():
    sent = []

    def create(model, messages, stream, **options):
        sent.append(json.loads(json.dumps(messages)))
        delta = SimpleNamespace(content=f"answer {len(sent)}")
        return [SimpleNamespace(choices=[SimpleNamespace(delta=delta, finish_reason=None)])]

    fake = SimpleNamespace(chat=SimpleNamespace(completions=SimpleNamespace(create=create)))
    converse(fake, "x", scripted("one", "two", "q"), lambda piece: None, system="Be brief.")
    assert [[m["content"] for m in messages] for messages in sent] == [
        ["Be brief.", "one"],
        ["Be brief.", "one", "answer 1", "two"],
    ]


def test_a_talk_that_grows_too_long_forgets_its_oldest_turns_and_never_the_system_message(client):
    lines = [f"{i} gold" for i in range(12)]
    talk = converse(
        client, "tiny", scripted(*lines, "q"), lambda piece: None, system="Be brief.", max_completion_tokens=4, seed=1
    )
    assert talk[0] == {"role": "system", "content": "Be brief."}
    assert [m["role"] for m in talk[1:]] == ["user", "assistant"] * (len(talk) // 2)
    assert talk[-2]["content"] == "11 gold" and len(talk) < 24


def test_one_question_that_is_too_long_is_the_readers_to_shorten(client):
    with pytest.raises(openai.BadRequestError, match="shorten"):
        answered(client, "tiny", [{"role": "user", "content": "Q" * 80}], print)


def test_a_question_that_is_refused_is_told_of_and_the_talk_goes_on(client):
    shown = []
    talk = converse(client, "tiny", scripted("Hi", "Q" * 80, "And?", "q"), shown.append, max_completion_tokens=3)
    assert [m["content"] for m in talk if m["role"] == "user"] == ["Hi", "And?"], "and nothing is forgotten for it"
    assert [m["role"] for m in talk] == ["user", "assistant"] * 2
    assert any("shorten" in piece for piece in shown)


def test_other_errors_forget_nothing(client):
    messages = [{"role": "user", "content": "Hi"}] * 5
    with pytest.raises(openai.BadRequestError):
        answered(client, "tiny", messages, print, temperature=-1)
    assert len(messages) == 5


def test_pieces_are_the_text_and_nothing_else(client):
    turn = dict(model="tiny", messages=[{"role": "user", "content": "Hi"}], seed=1, max_completion_tokens=9)
    whole = client.chat.completions.create(**turn).choices[0].message.content
    stream = client.chat.completions.create(stream=True, stream_options={"include_usage": True}, **turn)
    found = list(pieces(stream))
    assert "".join(found) == whole and all(found) and len(found) > 1
    cut, ended = (
        pieces(
            [SimpleNamespace(choices=[SimpleNamespace(delta=SimpleNamespace(content="a"), finish_reason=reason)])], "…"
        )
        for reason in ("length", "stop")
    )
    assert (list(cut), list(ended)) == (["a", "…"], ["a"])


# ---------------------------------------------------------------------------------------------- what it costs and knows


def test_an_answer_costs_its_tokens_times_their_prices():
    usage = SimpleNamespace(prompt_tokens=3_000_000, completion_tokens=500_000)
    assert cost(usage, prompt_price=2.0, completion_price=8.0) == 3 * 2 + 0.5 * 8


def test_agreement_is_the_share_of_the_most_frequent_answer():
    assert agreement(["Lincoln.", " Lincoln", "Grant.", "Lincoln."]) == ("Lincoln", 0.75)
    assert agreement(["a"]) == ("a", 1.0)


def test_answers_are_resampled_with_seeds_of_their_own(client):
    answers = resampled(client, "tiny", "Hi", 4, max_tokens=8)
    assert len(set(answers)) > 1
    assert answers == resampled(client, "tiny", "Hi", 4, max_tokens=8)


# -------------------------------------------------------------------------------------------------------------- tuning


def test_examples_are_the_template_of_the_server_and_teach_the_answer_and_its_end_alone():
    pairs = [("Who?", "Abraham Lincoln"), ("And who was president?", "Gold")]
    tokens, targets = examples(pairs, TOKENIZER)
    for (question, answer), x, y in zip(pairs, tokens, targets, strict=True):
        prompt = serve.Chat(model="x", messages=[{"role": "user", "content": question}]).laid_out()
        n = len(TOKENIZER.encode(prompt))
        taught = y[y >= 0].tolist()
        assert TOKENIZER.decode(x[:n].tolist()) == prompt
        assert TOKENIZER.decode(taught[:-1]) == f" {answer}." and taught[-1] == END
        first = int((y >= 0).nonzero()[0])
        assert first == n - 1, "the first word of the answer is learned from the last token of the prompt"
        assert x[n : n + len(taught) - 1].tolist() == taught[:-1]


def test_the_loss_of_an_answer_is_the_cross_entropy_of_its_tokens():
    torch.manual_seed(0)
    model = GPT(300, D=16, H=2, layers=1, limit=64, dropout=0.0)
    tokens, targets = examples([("Who?", "Lincoln"), ("And who was president?", "Gold")], TOKENIZER)
    loss, count = answer_loss(model, (tokens, targets))
    wanted = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum")
    assert count == int((targets != -100).sum()) and loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    padded = F.pad(tokens, (0, 5), value=END), F.pad(targets, (0, 5), value=-100)
    assert answer_loss(model, padded)[0].item() == pytest.approx(loss.item(), rel=1e-5), "padding changes nothing"


# ------------------------------------------------------------------------------------------------------------ a picture


def test_a_picture_that_comes_as_text_is_decoded():
    with stand_in(lambda body, port: (200, {"data": [{"b64_json": base64.b64encode(PNG).decode()}]})) as (found, asked):
        assert picture(found, "a parrot", model="painter", size="1024x1024") == PNG
    assert asked == [("/v1/images/generations", dict(model="painter", prompt="a parrot", n=1, size="1024x1024"))]


def test_a_picture_that_comes_as_an_address_is_fetched():
    with stand_in(lambda body, port: (200, {"data": [{"url": f"http://127.0.0.1:{port}/p.png"}]})) as (found, asked):
        assert picture(found, "a parrot") == PNG
    assert asked[-1] == ("/p.png", None)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://x/y", "data:image/png;base64,eA=="])
def test_a_picture_is_fetched_from_the_web_alone(url):
    with (
        stand_in(lambda body, port: (200, {"data": [{"url": url}]})) as (found, _),
        pytest.raises(ValueError, match="expected an address of the web"),
    ):
        picture(found, "a parrot")


def test_a_service_that_refuses_to_draw_is_heard():
    error = {"error": {"message": "no parrots", "type": "invalid_request_error", "param": "prompt", "code": "no"}}
    with (
        stand_in(lambda body, port: (400, error)) as (found, _),
        pytest.raises(openai.BadRequestError, match="no parrots"),
    ):
        picture(found, "a parrot")
