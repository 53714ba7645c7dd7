"""Implement `earmark eval reward-server`: rewards for trainers over HTTP, on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from earmark.flows.command.options import BaseUrlOption, SettingsOption, StoreOption, open_store, option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.applications import Starlette

    from earmark.tasks.evaluation.rewards import Rewarder

LARGEST_BYTES = 1 << 30  # of a request's body


def reward_server(
    corpus: Annotated[
        str | None, typer.Argument(metavar="CORPUS", help="Whose question a judge answers; not with --scorer.")
    ] = None,
    scorer: Annotated[Path | None, option("FILE", "A scorer, a TOML file.")] = None,
    reward: Annotated[str | None, option("NAME", "The score that is the reward, if the scorer has several.")] = None,
    annotator: Annotated[str | None, option("--annotator -a SPEC", "The judge, such as vllm:MODEL.")] = None,
    evaluation: Annotated[str | None, option("--evaluation -e NAME", "The judge's evaluation.")] = None,
    mode: Annotated[str | None, option("NAME", "The form of the question. Default: the first on one clip.")] = None,
    audio_root: Annotated[list[Path] | None, option("DIR", "Allow paths of clips in this folder.")] = None,
    port: Annotated[int, option("N", "The port; 0 takes a free one.", min=0, max=65535)] = 8017,
    base_url: BaseUrlOption = None,
    settings: SettingsOption = None,
    store: StoreOption = None,
) -> None:
    """Serve rewards of clips to trainers, for GRPO with verl, TRL or ms-swift: a batch in, a number each out.

    A scorer, a rubric judge or a critic gives them; the ledger keeps the answers. Any user of this machine can ask.

    **Examples:**

    `earmark eval reward-server --scorer dnsmos.toml --reward ovrl_mos --audio-root rollouts`

    `earmark eval reward-server instruction-rubrics -e alignment -a vllm:models/judge --audio-root clips`
    """
    from earmark.flows.command.local_server import serve_locally
    from earmark.schemas.errors import ConfigError
    from earmark.schemas.evaluations import Examinee
    from earmark.tasks.evaluation.judging import asked_of
    from earmark.tasks.evaluation.rewards import judge_rewarder, scorer_rewarder
    from earmark.tasks.evaluation.samples import MeasurementOptions
    from earmark.tasks.pipeline.registry import find_corpus
    from earmark.tasks.pipeline.scoring import read_scorers

    if (scorer is None) == (corpus is None):
        raise ConfigError("expected --scorer, or a CORPUS with a judge (--annotator)")
    place, roots = open_store(store), tuple(audio_root or ())
    if scorer is not None:
        opened = scorer_rewarder(read_scorers([scorer])[0], reward, place)
    else:
        judge = asked_of(Examinee, annotator, base_url, settings, "earmark eval reward-server")
        opened = judge_rewarder(find_corpus(str(corpus)), MeasurementOptions(evaluation, mode), judge, place)
    with opened as rewarder:
        app = make_reward_app(rewarder, roots)
        says = "rewards: POST {}/rewards on this machine; Ctrl-C ends"
        serve_locally(app, port, says.format, answer_s=10)  # stopped requests still answer


def make_reward_app(rewarder: Rewarder, roots: Sequence[Path]) -> Starlette:
    """Return the application: `/rewards` for trainers, and `/score` as a scorer's server."""
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import Route

    from earmark.schemas.errors import EarmarkError, InputError
    from earmark.tasks.evaluation import rewards

    async def body_of(request: Request) -> dict[str, Any]:
        # a page of the web cannot send this type to another address without being allowed to
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise InputError("expected Content-Type: application/json")
        content, length = bytearray(), int(request.headers.get("content-length", 0))
        if length <= LARGEST_BYTES:
            async for part in request.stream():  # in chunks, a body names no length
                content += part
                if (length := len(content)) > LARGEST_BYTES:
                    break
        if length > LARGEST_BYTES:
            raise InputError(f"expected at most {LARGEST_BYTES:,} bytes; send a smaller batch, or paths of clips")
        try:
            body = json.loads(content)
        except (ValueError, RecursionError):
            raise InputError("expected JSON") from None
        if not isinstance(body, dict):
            raise InputError("expected an object")
        return body

    async def given(request: Request) -> Response:
        items = (await body_of(request)).get("items")
        found: list[rewards.GivenReward] = await run_in_threadpool(rewards.reward, rewarder, items, roots)
        return JSONResponse({"rewards": [one["reward"] for one in found], "items": found})

    async def score(request: Request) -> Response:
        one: rewards.GivenReward
        (one,) = await run_in_threadpool(rewards.reward, rewarder, [await body_of(request)], roots)
        if one["reward"] is None:
            return JSONResponse({"error": f"{one['reason']}: {one['detail']}"}, 422)
        return JSONResponse({"reward": one["reward"], **one["scores"]})

    def refused(request: Request, error: Exception) -> Response:
        return JSONResponse({"error": str(error)}, 400 if isinstance(error, InputError) else 502)

    return Starlette(
        routes=[Route("/rewards", given, methods=["POST"]), Route("/score", score, methods=["POST"])],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])],
        exception_handlers={EarmarkError: refused, ClientDisconnect: refused},  # a client that left hears nothing
    )
