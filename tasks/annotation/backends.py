"""Register the backends of annotator specs, `<name>` among the entry points `earmark.backends`."""

from __future__ import annotations

from dataclasses import dataclass

from earmark.schemas.registry import Registry


@dataclass(frozen=True)
class Provider:
    """Facts about a backend, known before its module is imported."""

    make: str  # `module:name` of a maker of a `tasks.annotation.backend.Backend` from `AnnotatorConfig` and `Media`
    hosted: bool = False  # whether it asks its provider's paid servers, unless the config gives another
    batches: bool = False  # whether it can have a batch API (`earmark.tasks.annotation.backend.Batching`)
    in_process: bool = False  # whether the model runs in the build's own processes, or in a child process
    library: tuple[str, str] | None = None  # its library, and the extra of Earmark with it
    # `module:function` returning the registry of its models, for models that are named functions; the build key covers
    # the module of the config's function
    functions: str | None = None


BACKENDS = Registry(
    "annotation backend",
    "earmark.backends",
    Provider,
    {
        "openai": Provider("earmark.tasks.annotation.openai_compatible:OpenAICompatible", hosted=True, batches=True),
        "gemini": Provider("earmark.tasks.annotation.gemini:Gemini", hosted=True, batches=True),
        "vllm": Provider("earmark.tasks.annotation.vllm_serve:VllmServe", in_process=True),
        "transformers": Provider(
            "earmark.tasks.annotation.transformers_local:TransformersLocal",
            in_process=True,
            library=("transformers", "models"),
        ),
        "litellm": Provider(
            "earmark.tasks.annotation.litellm_backend:LiteLLM", hosted=True, library=("litellm", "litellm")
        ),
        "builtin": Provider(
            "earmark.tasks.annotation.builtin:Builtin", functions="earmark.tasks.annotation.builtin:functions"
        ),
        "scorer": Provider("earmark.tasks.annotation.scorer:make_scorer", in_process=True),
    },
)


def provider_of(annotator: str) -> Provider:
    """Return the backend of a checked spec.

    Raises:
        ConfigError: its package cannot be imported.
    """
    return BACKENDS.find(annotator.partition(":")[0])
