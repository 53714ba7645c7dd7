"""Register the backends of annotator specs: ours by `@backend` in their modules, others by `earmark.backends`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from earmark.schemas.registry import Registry, registered

Maker = TypeVar("Maker", bound=Callable[..., object])


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


def backend(name: str, **facts: Any) -> Callable[[Maker], Maker]:
    """Register a backend's maker. Its facts are literal fields of `Provider`: they are read without importing it."""
    return lambda make: make


BACKENDS = Registry(
    "annotation backend",
    "earmark.backends",
    Provider,
    {one.name: Provider(one.reference, **one.facts) for one in registered("earmark.tasks.annotation", mark="backend")},
)


def provider_of(annotator: str) -> Provider:
    """Return the backend of a checked spec.

    Raises:
        ConfigError: its package cannot be imported.
    """
    return BACKENDS.find(annotator.partition(":")[0])
