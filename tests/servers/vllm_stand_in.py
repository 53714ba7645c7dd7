"""A stand-in for the Python of vLLM's environment: takes the words of `vllm serve`, writes its log lines, answers as
its server does, and fails in ways that the model's name asks for. What it gets goes to files in the folder `STAND_IN`.

| model | what it does |
|---|---|
| `plain` | loads, and answers |
| `slow` | says for 1.5 s that it downloads, loads and compiles |
| `hangs` | stops while it loads |
| `memory`, `architecture`, `option`, `missing`, `killed` | ends while it loads |
| `taken` | finds its port taken, the first time |
| `crashes-N` | ends in the middle of its N-th answer, each time |
| `stubborn` | does not end when it is told to |
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

FOLDER = Path(os.environ["STAND_IN"])
WORDS = sys.argv[4:]
MODEL = sys.argv[4]
OPTIONS = dict(word[2:].partition("=")[::2] for word in WORDS if word.startswith("--"))
KEY = f"Bearer {os.environ['VLLM_API_KEY']}"
ENGINE = "(EngineCore pid=7) ERROR 11-25 09:40:59 [core.py:1101] "
LAST = "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): "
ENDS = {
    "memory": (
        f"{ENGINE}ValueError: No available memory for the cache blocks. Try increasing\n{LAST}{{}}",
        1,
    ),
    "architecture": (
        "  Value error, Model architectures ['NoSuchModel'] are not supported for now. Supported architectures: [...]",
        1,
    ),
    "option": ("usage: vllm serve [model_tag] [options]\nvllm: error: unrecognized arguments: --dtipe=float32", 2),
    "missing": (
        "OSError: lab/none is not a local folder and is not a valid model identifier listed on 'https://huggingface.co'",
        1,
    ),
    "killed": (f"{LAST}{{'EngineCore': -9}}", 1),
}
TOKENS = {"Yes": [11], "No": [12], "two words": [1, 2]} | {str(digit): [20 + digit] for digit in range(10)}

ENGINE_PROCESS = subprocess.Popen(["sleep", "600"])


def say(*lines: str) -> None:
    """Write to the log."""
    print(*lines, sep="\n", flush=True)


def note(name: str, what: Any) -> None:
    """Keep a line for the test."""
    with (FOLDER / name).open("a") as file:
        file.write(json.dumps(what) + "\n")


def leave(code: int) -> None:
    """End, as the server does with its engine; killed, it leaves the engine behind."""
    if MODEL != "killed":
        ENGINE_PROCESS.kill()
    os._exit(code)


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    answered = 0

    def do_GET(self) -> None:
        """Models, and the fields of a request."""
        fields = {name: {} for name in ("model", "messages", "top_k", "min_p", "structured_outputs")}
        if self.path == "/openapi.json":
            self.reply({"components": {"schemas": {"ChatCompletionRequest": {"properties": fields}}}})
        elif self.allowed():
            self.reply({"data": [{"id": MODEL}]})

    def do_POST(self) -> None:
        """Tokens of a word, or a completion."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.allowed():
            return
        if self.path == "/tokenize":
            self.reply({"tokens": TOKENS.get(body["prompt"], [1, 2, 3])})
            return
        Handler.answered += 1
        if MODEL.startswith("crashes-") and Handler.answered >= int(MODEL.partition("-")[2]):
            say(
                "(EngineCore pid=7) ERROR 11-25 09:40:59 [core.py:1] RuntimeError: CUDA error: an illegal memory access"
            )
            leave(1)
        choice: dict[str, Any] = {"message": {"content": self.text(body)}, "finish_reason": "stop"}
        if ids := body.get("logprob_token_ids"):
            listed = [{"token": word, "logprob": -0.5 - place} for place, word in enumerate(self.words(ids))]
            choice["logprobs"] = {"content": [{**listed[0], "top_logprobs": listed}]}
        usage = {"prompt_tokens": 7, "completion_tokens": 1}
        self.reply({"model": body["model"], "choices": [choice], "usage": usage})
        note("answered", body)

    def text(self, body: dict[str, Any]) -> str:
        """An answer of the asked form."""
        form = body.get("structured_outputs", {})
        return form["choice"][0] if "choice" in form else json.dumps({"a": 1}) if "json" in form else "so"

    def words(self, ids: list[int]) -> list[str]:
        return [word for one in ids for word, tokens in TOKENS.items() if tokens == [one]]

    def allowed(self) -> bool:
        """Return whether the key is right; answer if it is not."""
        if self.headers["authorization"] != KEY:
            self.reply({"error": "Unauthorized"}, 401)
        return self.headers["authorization"] == KEY

    def reply(self, body: Any, status: int = 200) -> None:
        """Answer with JSON."""
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Write nothing."""


def main() -> None:
    """Load, then serve until told to end."""
    note(
        "started",
        {"words": sys.argv[1:], "pid": os.getpid(), "engine": ENGINE_PROCESS.pid, "names": sorted(os.environ)},
    )

    def end(*_: object) -> None:
        if MODEL != "stubborn":
            leave(0)

    signal.signal(signal.SIGTERM, end)
    say("(APIServer pid=6) INFO 11-25 09:40:41 [api_utils.py:286] non-default args: out of memory is no fault here")
    if MODEL in ENDS:
        say(ENDS[MODEL][0])
        leave(ENDS[MODEL][1])
    if MODEL == "taken" and len((FOLDER / "started").read_text().splitlines()) == 1:
        say("OSError: [Errno 98] Address already in use")
        leave(1)
    if MODEL == "slow":
        for line in (
            "model-00001-of-00002.safetensors:  41%|####      | 2.05G/5.00G [00:10<00:14, 205MB/s]",
            "Loading safetensors checkpoint shards:  50% Completed | 1/2 [00:02<00:02,  2.00s/it]",
            "INFO 11-25 09:40:59 [backends.py:1167] Dynamo bytecode transform time: 9.31 s",
        ):
            sys.stdout.write(line + "\r")
            sys.stdout.flush()
            time.sleep(0.5)
    if MODEL == "hangs":
        say("(EngineCore pid=7) INFO 11-25 09:40:59 [gpu_model_runner.py:5040] Starting to load model hangs...")
        while True:
            say("WARNING [shm_broadcast.py:1] No available shared memory broadcast block found in 60 seconds.")
            time.sleep(0.2)
    ThreadingHTTPServer((OPTIONS["host"], int(OPTIONS["port"])), Handler).serve_forever()


main()
