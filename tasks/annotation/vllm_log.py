"""Read the log of `vllm serve`: its stage, and the cause of its end. Pure functions, tested on recorded lines."""

from __future__ import annotations

import re

from earmark.tasks.annotation.errors import ModelMissing, ServerGone, StopRun, Unsupported

STAGES = tuple(
    (re.compile(pattern, re.IGNORECASE), stage)
    for pattern, stage in (
        (r"Dynamo bytecode|Compiling a graph|torch\.compile took|Capturing CUDA|Graph captur", "compiling"),
        (r"Starting to load model|Loading (safetensors|pt|weights)|checkpoint shards|Initializing a V1", "loading"),
        (r"Fetching \d+ files|Download|\.(safetensors|bin|json|gguf)[^:\s]*: +\d+%", "downloading"),
    )
)
"""The first match decides."""
PERCENT = re.compile(r"\b(\d{1,3})%")
HANGS = re.compile(r"No available shared memory broadcast block|Waiting for \d+ (local|core)")
"""Lines repeated by a hanging server."""
HEAD = re.compile(r"^(\(\w+( pid=\d+)?\) *)?((INFO|WARNING|ERROR|CRITICAL) [\d: -]+(\[[^\]]*\] *)?)?")
HARMLESS = re.compile(r"^(\(\w+( pid=\d+)?\) *)?(INFO|WARNING)\b")
ERROR = re.compile(r"^[\w.]*(Error|Exception|Interrupt)\b.*|^.*\berror: .*")
WRAPPED = re.compile(r"Engine core initialization failed|EngineDeadError|Failed core proc|^subprocess\.")
"""Errors that only report another error further up."""

FAULTS: tuple[tuple[re.Pattern[str], type[StopRun], str], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), kind, words)
    for pattern, kind, words in (
        (
            r"out of memory|No available memory for the cache|KV cache is needed|desired GPU memory utili[sz]ation"
            r"|cannot allocate memory|DefaultCPUAllocator|Failed core proc.*: -9\b",
            ServerGone,
            "out of memory; set serve.tensor_parallel_size, serve.max_model_len or serve.gpu_memory_utilization, or "
            "take a smaller model",
        ),
        (
            r"Model architecture.*not supported|does not recognize this architecture|no vLLM implementation",
            ModelMissing,
            "unknown architecture; take a newer vLLM, or ask the model as transformers:",
        ),
        (
            r"not a valid model identifier|Invalid repository ID|Repository Not Found|gated repo|is not a local folder"
            r"|LocalEntryNotFound|cannot find any model weights",
            ModelMissing,
            "no such model, or none that may be had; check annotator, HF_TOKEN and the network",
        ),
        (r"No module named '?vllm", ServerGone, "no vLLM beside EARMARK_VLLM; run 'earmark doctor --vllm'"),
        (
            r"unrecognized arguments|error: argument|error: ambiguous",
            Unsupported,
            "an option that this vLLM does not take; check serve and extra_body.engine",
        ),
    )
)  # fmt: skip
"""Causes of a server's end, with advice; the first match decides."""


def is_progress(line: str) -> bool:
    """Return whether a line shows progress."""
    return bool(line.strip()) and not HANGS.search(line)


def stage_of(line: str) -> str | None:
    """Return the server's stage in a line, with its percentage; None without a stage."""
    stage = next((word for pattern, word in STAGES if pattern.search(line)), None)
    done = PERCENT.search(line)
    return f"{stage} {done[1]} %" if stage and done else stage


def port_taken(log: str) -> bool:
    """Return whether the server ended because its port was taken."""
    return "address already in use" in log.lower()


def fault_in(log: str, code: int) -> tuple[type[StopRun], str]:
    """Return the kind of fault at a server's end, and one line: a known cause with advice, and the log's own words."""
    lines = [HEAD.sub("", line).strip() for line in log.splitlines() if not HARMLESS.match(line)]
    lines = [line for line in lines if line]
    for pattern, kind, words in FAULTS:
        if found := next((line for line in lines if pattern.search(line)), None):
            return kind, f"{words} ({found[:200]})"
    if code == 137:  # SIGKILL
        return FAULTS[0][1], f"killed, most often by the kernel: {FAULTS[0][2]}"
    errors = [line for line in lines if ERROR.match(line) and not WRAPPED.search(line)]
    return ServerGone, (errors or lines or ["it wrote nothing"])[-1]
