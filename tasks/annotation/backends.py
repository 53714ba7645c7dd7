"""The backends that an annotator's spec can begin with, `<name>` among the entry points `earmark.backends`."""

from __future__ import annotations

from dataclasses import dataclass

from earmark.schemas.registry import Registry


@dataclass(frozen=True)
class Provider:
    """What is known of a backend before its module is imported."""

    make: str  # `module:name` of what makes a `tasks.annotation.backend.Backend` of an `AnnotatorConfig` and a `Media`
    hosted: bool = False  # whether its provider's own servers are asked, for money, unless the config names another
    batches: bool = False  # whether it can have a batch API (`earmark.tasks.annotation.backend.Batching`)
    in_process: bool = False  # whether the model runs in the build's own processes
    library: tuple[str, str] | None = None  # the library that it needs, and the extra of Earmark that brings it
    # `module:function` that gives the registry of its models, where they are functions known by name; the build key
    # covers the module of the one that a config names
    functions: str | None = None


BACKENDS = Registry(
    "annotation backend",
    "earmark.backends",
    Provider,
    {
        "openai": Provider("earmark.tasks.annotation.openai_compatible:OpenAICompatible", hosted=True, batches=True),
        "gemini": Provider("earmark.tasks.annotation.gemini:Gemini", hosted=True, batches=True),
        "vllm": Provider(
            "earmark.tasks.annotation.vllm_offline:VllmOffline", in_process=True, library=("vllm", "cuda")
        ),
        "transformers": Provider(
            "earmark.tasks.annotation.transformers_local:TransformersLocal",
            in_process=True,
            library=("transformers", "audio"),
        ),
        "builtin": Provider(
            "earmark.tasks.annotation.builtin:Builtin", functions="earmark.tasks.annotation.builtin:functions"
        ),
        "scorer": Provider("earmark.tasks.annotation.scorer:make_scorer", in_process=True),
    },
)


def provider_of(annotator: str) -> Provider:
    """The backend that a checked spec begins with.

    Raises:
        ConfigError: the package that adds it cannot be imported.
    """
    return BACKENDS.find(annotator.partition(":")[0])
