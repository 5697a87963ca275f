"""A web server for the GPT of chapter 9 that speaks the OpenAI API: `python -m lrm_utils.serve`.

It owns requests, their limits, and the stream of text; the model and its sampling come from chapter 9, the tokens from
chapter 4. There are no keys and no encryption: whoever can reach its port may use it.
"""

import argparse
import asyncio
import codecs
import functools
import json
import logging
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Annotated, Any, ClassVar, Literal
from uuid import uuid4

import torch

try:
    import uvicorn
    from fastapi import Depends, FastAPI, Request
    from fastapi.responses import JSONResponse, Response, StreamingResponse
    from pydantic import (
        AliasChoices,
        BaseModel,
        BeforeValidator,
        ConfigDict,
        Field,
        ValidationError,
        ValidationInfo,
        field_validator,
        model_validator,
    )
    from starlette.exceptions import HTTPException
    from starlette.requests import ClientDisconnect
    from starlette.types import Message as Sent
    from starlette.types import Send
except ImportError as problem:
    raise ImportError(f"the server needs {problem.name}: pip install 'lrm-utils[serve]'") from None

from lrm_utils import checkpoints
from lrm_utils.models.bpe_and_wordpiece import CHAR_TO_BYTE, ByteBPE
from lrm_utils.models.gpt import GPT, generate, greedy, sampler

END = "<|endoftext|>"
ROLES = {"system": "System", "developer": "System", "user": "User", "assistant": "Assistant"}
IGNORED = {"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"}  # change no text
NEUTRAL = {  # settings that this server does not know, with the values that change no text
    "best_of": 1,
    "echo": False,
    "frequency_penalty": 0,
    "functions": [],
    "logit_bias": {},
    "logprobs": False,
    "parallel_tool_calls": True,
    "presence_penalty": 0,
    "response_format": {"type": "text"},
    "suffix": "",
    "tool_choice": "none",
    "tools": [],
}
PATIENCE = 30  # seconds for a client to send its request, or to take the next part of its answer
ROUTES = "GET /v1/models, POST /v1/completions, POST /v1/chat/completions"
log = logging.getLogger("uvicorn.error")


class Refused(Exception):
    """Why a request is not answered; `json` is what the API calls an error."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None):
        super().__init__(message)
        kind = {429: "requests", 500: "server_error", 503: "server_error"}.get(status, "invalid_request_error")
        self.status, self.json = status, {"error": {"message": message, "type": kind, "param": param, "code": code}}


def told(problem: Exception) -> Refused:
    """What a client is told of a fault of the server; the rest stands in the log."""
    if isinstance(problem, Refused):
        return problem
    return Refused(500, f"the server failed ({type(problem).__name__}): its log says where", code="internal_error")


class Strict(BaseModel):
    """JSON whose values have the right types: the string "5" is no number. A null counts as left out."""

    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def without_nulls(cls, data: Any) -> Any:
        """The settings that were made."""
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, dict) else data


Several = BeforeValidator(lambda value: [value] if isinstance(value, str) else value)  # one string is a list of one
Filled = Annotated[str, Field(min_length=1)]


class Message(Strict):
    """One turn of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str


class Asked(Strict):
    """What both kinds of requests share, with the defaults of the API."""

    model: str
    length: int | None = Field(None, ge=1, validation_alias=AliasChoices("max_completion_tokens", "max_tokens"))
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, ge=0, le=1)
    seed: int | None = None
    stop: Annotated[list[Filled], Several, Field(max_length=4)] = []
    stream: bool = False
    stream_options: dict[str, bool] = {}
    n: int = Field(1, ge=1, le=1)

    @field_validator("length")
    @classmethod
    def within_limit(cls, length: int | None, info: ValidationInfo) -> int | None:
        """No more tokens than the server gives."""
        if length is not None and length > info.context:
            raise ValueError(f"{length:,} tokens are too many: ask for {info.context:,} at most")
        return length


class Completion(Asked):
    """Go on from a prompt."""

    prompt: Annotated[list[Filled], Several, Field(min_length=1, max_length=1)]
    text_in: ClassVar = "prompt"
    names: ClassVar = ("cmpl", "text_completion", "text_completion")  # of an answer, and of a part of it

    def laid_out(self) -> str:
        """The text that the model goes on from."""
        return self.prompt[0]

    def choice(self, text: str, reason: str | None) -> dict:
        """The answer as the API has it."""
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}

    part = choice


class Chat(Asked):
    """Answer in a conversation, which for a base model is a text with a name in front of each turn."""

    messages: Annotated[list[Message], Field(min_length=1)]
    text_in: ClassVar = "messages"
    names: ClassVar = ("chatcmpl", "chat.completion", "chat.completion.chunk")

    def laid_out(self) -> str:
        """The text that the model goes on from; no space at its end, as the next word brings its own."""
        turns = [f"{ROLES[message.role]}: {message.content.strip()}" for message in self.messages]
        return "\n".join([*turns, "Assistant:"])

    def choice(self, text: str, reason: str | None) -> dict:
        """The answer as the API has it."""
        said = {"role": "assistant", "content": text, "refusal": None}
        return {"index": 0, "message": said, "logprobs": None, "finish_reason": reason}

    def part(self, text: str, reason: str | None, **more: str) -> dict:
        """What a part of the stream adds to the message."""
        return {"index": 0, "delta": more | {"content": text} if text or more else {}, "finish_reason": reason}


def parse(kind: type[Asked], body: bytes, name: str, most: int) -> Asked:
    """A request for the model of that name from its JSON, or the first thing that is wrong with it."""
    try:
        asked = kind.model_validate_json(body, context=most)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        why = first["msg"].removeprefix("Value error, ")
        said = f"{where}: {why}" if where else f"{why}; send a JSON object"
        raise Refused(400, said, where.split(".")[0] or None) from None
    if asked.model != name:
        raise Refused(404, f"there is no model {asked.model!r}; there is: {name}", code="model_not_found")
    for key, value in asked.model_extra.items():
        known = key in NEUTRAL and value == NEUTRAL[key] and isinstance(value, bool) == isinstance(NEUTRAL[key], bool)
        if key not in IGNORED and not known:  # it would change the answer
            raise Refused(400, f"{key} has no effect here: leave it out", key, "unsupported_parameter")
    if "stream_options" in asked.model_fields_set and not asked.stream:
        raise Refused(400, "stream_options are for streams: set stream, or leave them out", "stream_options")
    if asked.length is None:
        asked.length = most if kind is Chat else min(16, most)
    return asked


class Visible:
    """Turns the bytes of tokens into text that may be shown: whole characters, and nothing of a stop string."""

    def __init__(self, stops: list[str], strip: bool = False):
        """With `strip`, white space in front of the text is left out."""
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")  # keeps half a character back
        self.stops, self.strip, self.held, self.stopped = stops, strip, "", False

    def add(self, data: bytes, last: bool = False) -> str:
        """What may be shown after these bytes; after the last ones, all that is left."""
        self.held += self.decoder.decode(data, last)
        found = [(at + len(stop), at) for stop in self.stops if (at := self.held.find(stop)) >= 0]
        self.stopped = bool(found)
        if found:  # the one that is complete first, as if letters came one by one
            shown, self.held = self.held[: min(found)[1]], ""
        else:
            cut = len(self.held) - (0 if last else self.doubtful())
            shown, self.held = self.held[:cut], self.held[cut:]
        if self.strip:
            shown = shown.lstrip()
            self.strip = not shown
        return shown

    def doubtful(self) -> int:
        """How many letters at the end of the held text may be the first ones of a stop string."""
        starts = [stop[:-1][: len(self.held)] for stop in self.stops]
        return max((n for s in starts for n in range(1, len(s) + 1) if self.held.endswith(s[:n])), default=0)


def picker(asked: Asked, device: torch.device) -> Callable:
    """How the next token is chosen."""
    if asked.temperature < 1e-6 or asked.top_p == 0:  # logits divided by less would overflow
        return greedy
    generator = torch.Generator(device)
    if asked.seed is None:
        generator.seed()  # else every answer would be drawn with the same seed
    else:
        generator.manual_seed(asked.seed % 2**63)
    return sampler(generator, temperature=asked.temperature, top_p=asked.top_p if asked.top_p < 1 else None)


class Writer:
    """One answer: draws its tokens one by one, counts them, and knows why it ended."""

    def __init__(self, model: GPT, tokenizer: ByteBPE, ids: list[int], asked: Asked):
        chat, device = isinstance(asked, Chat), model.table.weight.device
        self.visible = Visible(asked.stop + (["\nUser:", "User:"] if chat else []), strip=chat)
        self.steps = generate(model, torch.tensor([ids], device=device), asked.length, picker(asked, device))
        self.tokenizer, self.asked, self.read, self.drawn, self.reason = tokenizer, asked, len(ids), 0, None

    def step(self) -> str:
        """Draw a token; what may be shown now, which can be nothing."""
        token, known = int(next(self.steps)), self.tokenizer
        self.drawn += 1
        if token == known.id(END):
            self.reason = "stop"
        elif self.drawn == self.asked.length:
            self.reason = "length"
        data = b"" if token in known.signals else bytes(map(CHAR_TO_BYTE.get, known.tokens[token]))
        shown = self.visible.add(data, last=self.reason is not None)
        if self.visible.stopped:
            self.reason = "stop"
        return shown

    def usage(self) -> dict[str, int]:
        """The tokens read and drawn, with the one that ends a text and those of a stop string."""
        total = self.read + self.drawn
        return {"prompt_tokens": self.read, "completion_tokens": self.drawn, "total_tokens": total}


async def left(request: Request) -> None:
    """Wait until the client is gone. Asking again and again would read, and keep, all that it sends meanwhile."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Streamed(StreamingResponse):
    """A stream that is broken off when its client is there and does not read."""

    async def stream_response(self, send: Send) -> None:
        """Send the parts, each within `PATIENCE`."""

        async def soon(message: Sent) -> None:
            async with asyncio.timeout(PATIENCE):
                await send(message)

        with suppress(TimeoutError):
            await super().stream_response(soon)


async def texts(writer: Writer, request: Request, worker: ThreadPoolExecutor) -> AsyncIterator[str]:
    """The text as it comes, until its end, or until nobody listens.

    Each step is a job of its own in the line before the worker, so that all who wait take turns.
    """
    loop = asyncio.get_running_loop()
    gone = loop.create_task(left(request))
    try:
        await asyncio.sleep(0)  # who has gone already is seen before the first step
        while writer.reason is None and not gone.done():
            if request.app.state.stopping():
                raise Refused(503, "the server is being stopped: ask again when it is back", code="server_stopping")
            if text := await loop.run_in_executor(worker, writer.step):
                yield text
    finally:
        gone.cancel()


async def events(parts: AsyncIterator[str], writer: Writer, head: dict) -> AsyncIterator[str]:
    """The text as server-sent events."""
    asked, with_usage = writer.asked, writer.asked.stream_options.get("include_usage")

    def event(*choices: dict, **more: Any) -> str:
        data = head | {"choices": choices} | ({"usage": None} if with_usage else {}) | more
        return f"data: {json.dumps(data)}\n\n"  # in ASCII: some readers take U+2028 for the end of a line

    if isinstance(asked, Chat):
        yield event(asked.part("", None, role="assistant"))
    try:
        async for text in parts:
            yield event(asked.part(text, None))
    except Exception as problem:  # too late for a status
        if not isinstance(problem, Refused):
            log.exception("an answer broke off")
        yield f"data: {json.dumps(told(problem).json)}\n\n"
    if writer.reason:
        yield event(asked.part("", writer.reason))
        if with_usage:
            yield event(usage=writer.usage())
        yield "data: [DONE]\n\n"


async def reply(request: Request, why: Exception) -> Response:
    """Any error in the shape of the API."""
    headers = {"Retry-After": "1"} if isinstance(why, Refused) and why.status == 429 else None
    if isinstance(why, HTTPException):  # no such route, or not by this method
        headers, said = why.headers, f"{request.method} {request.url.path}: {why.detail}; there are {ROUTES}"
        why = Refused(why.status_code, said)
    why = told(why)
    return JSONResponse(why.json, why.status, headers)


def create_app(
    model: GPT, tokenizer: ByteBPE, name: str, *, max_tokens: int = 256, max_at_once: int = 64, max_body: int = 65_536
) -> FastAPI:
    """An app that serves a model under a name.

    An answer has `max_tokens` tokens at most, a request `max_body` bytes, and `max_at_once` requests are answered at a
    time. An answer may be longer than the model's memory, of which `generate` drops the older half when it is full.
    """
    if len(tokenizer) != model.V:
        raise ValueError(f"the tokenizer has {len(tokenizer):,} tokens, the model {model.V:,}: take two that fit")
    if min(max_tokens, max_at_once, max_body) < 1:
        raise ValueError("max_tokens, max_at_once and max_body must be 1 or more: else nothing is answered")
    tokenizer.id(END)  # refuses one that has no such token
    served = {"id": name, "object": "model", "created": int(time.time()), "owned_by": "lrm-utils"}
    most_bytes = model.limit * max(map(len, tokenizer.tokens))  # that its tokens can hold
    present = 0

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with ThreadPoolExecutor(1) as app.state.worker:  # one thread: one step at a time, beside the event loop
            yield

    async def whole(request: Request) -> bytes:
        """The body, as far as it is allowed. Its type must be named, which no page of another site may do unasked."""
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, "send JSON, and say so: Content-Type: application/json")
        body = bytearray()
        try:
            async with asyncio.timeout(PATIENCE):
                async for part in request.stream():
                    body += part
                    if len(body) > max_body:
                        said = f"the body has more than {max_body:,} bytes: shorten it"
                        raise Refused(413, said, code="request_too_large")
        except TimeoutError:
            raise Refused(408, f"the body was not complete within {PATIENCE} seconds") from None
        except ClientDisconnect:
            raise Refused(400, "the connection closed before the body was complete") from None
        return bytes(body)

    async def place(body: Annotated[bytes, Depends(whole)]) -> AsyncIterator[bytes]:
        """The body, with one of the places for as long as it is being answered."""
        nonlocal present
        if present >= max_at_once:
            raise Refused(429, f"{present} others are here: try again in a moment", code="rate_limit_exceeded")
        present += 1
        try:
            yield body
        finally:
            present -= 1

    Placed = Annotated[bytes, Depends(place, scope="request")]  # up to the last byte of the answer

    async def answer(kind: type[Asked], body: bytes, request: Request) -> Any:
        asked, worker = parse(kind, body, name, max_tokens), app.state.worker
        written, ids = asked.laid_out(), None
        if len(written.encode()) <= most_bytes:
            encoded = functools.partial(tokenizer.encode, written, length=model.limit + 1)
            ids = await asyncio.get_running_loop().run_in_executor(worker, encoded)
        if ids is None or len(ids) > model.limit:
            said = f"{asked.text_in}: more tokens than the {model.limit} that the model can read; shorten the text"
            raise Refused(400, said, asked.text_in, "context_length_exceeded")
        writer, (prefix, of_all, of_part) = Writer(model, tokenizer, ids, asked), asked.names
        parts = texts(writer, request, worker)
        head = {"id": f"{prefix}-{uuid4().hex}", "created": int(time.time()), "model": name}
        if asked.stream:
            stream = events(parts, writer, head | {"object": of_part})
            return Streamed(stream, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        text = "".join([part async for part in parts])
        return head | {"object": of_all, "choices": [asked.choice(text, writer.reason)], "usage": writer.usage()}

    handlers = dict.fromkeys((Refused, HTTPException, Exception), reply)
    app = FastAPI(lifespan=lifespan, exception_handlers=handlers, redirect_slashes=False, openapi_url=None)
    app.state.stopping = lambda: False

    @app.post("/v1/completions")
    async def completions(request: Request, body: Placed) -> Any:
        return await answer(Completion, body, request)

    @app.post("/v1/chat/completions")
    async def chat(request: Request, body: Placed) -> Any:
        return await answer(Chat, body, request)

    @app.get("/v1/models")
    async def models() -> dict:
        return {"object": "list", "data": [served]}

    @app.get("/v1/models/{asked}")
    async def one_model(asked: str) -> dict:
        if asked != name:
            raise Refused(404, f"there is no model {asked!r}; there is: {name}", code="model_not_found")
        return served

    return app


def server_of(app: FastAPI, **options: Any) -> uvicorn.Server:
    """What serves an app, and breaks off its answers when it is told to stop."""
    server = uvicorn.Server(uvicorn.Config(app, ws="none", timeout_graceful_shutdown=2, **options))
    app.state.stopping = lambda: server.should_exit
    return server


@contextmanager
def running(app: FastAPI) -> Iterator[str]:
    """Serve beside a notebook, on a free port of this machine: gives the address, and stops after the `with`."""
    server = server_of(app, log_config=None, access_log=False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
        thread.start()
        while thread.is_alive() and not server.started:
            time.sleep(0.01)
        if not server.started:
            raise RuntimeError("the server did not start: what it printed says why")
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        finally:
            server.should_exit = True
            thread.join()


def shipped(name: str) -> tuple[GPT, ByteBPE]:
    """The model and the tokenizer of a checkpoint."""
    found = checkpoints.load(name)
    if not isinstance(found.vocab, ByteBPE):
        raise ValueError(f"{name} is no GPT, which alone can be served: take gpt")
    model = GPT(len(found.vocab), **found.card["settings"])
    model.load_state_dict(found.weights)
    return model, found.vocab


def main() -> None:
    """Serve a shipped model until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m lrm_utils.serve", description=main.__doc__)
    parser.add_argument("--host", default="127.0.0.1", help="0.0.0.0 lets in everybody who can reach this machine")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--model", default="gpt", help="the name of a checkpoint")
    parser.add_argument("--max-tokens", type=int, default=256, help="the most that one answer may have")
    asked = parser.parse_args()
    torch.set_num_threads(1)  # steps are small: several threads would wait for each other
    try:
        app = create_app(*shipped(asked.model), asked.model, max_tokens=asked.max_tokens)
    except ValueError as error:
        sys.exit(str(error))
    with suppress(KeyboardInterrupt):  # comes once more when all is closed
        server_of(app, host=asked.host, port=asked.port).run()


if __name__ == "__main__":
    main()
