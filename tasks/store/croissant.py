"""`croissant.json`: a version for dataset search and loaders, after MLCommons Croissant 1.0 and its RAI terms."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from earmark.schemas.corpus import Corpus
from earmark.schemas.tables import THINGS, Table, embeds
from earmark.tasks.store.card import PERSONAL
from earmark.tasks.store.manifest import FileEntry, Manifest
from earmark.tasks.store.model_terms import names_of

_OWN = (
    *("citeAs", "column", "dataBiases", "dataCollection", "equivalentProperty", "extract", "field", "fileObject"),
    *("fileProperty", "fileSet", "format", "includes", "isLiveDataset", "jsonPath", "key", "md5", "parentField"),
    *("path", "personalSensitiveInformation", "recordSet", "references", "regex", "repeated", "replace"),
    *("samplingRate", "separator", "source", "subField", "transform"),
)
CONTEXT: dict[str, Any] = dict(
    sorted(
        {
            **{name: f"cr:{name}" for name in _OWN},
            **{name: {"@id": f"cr:{name}", "@type": "@json"} for name in ("data", "examples")},
            **{"@language": "en", "@vocab": "https://schema.org/", "sc": "https://schema.org/"},
            **{"cr": "http://mlcommons.org/croissant/", "rai": "http://mlcommons.org/croissant/RAI/"},
            **{"dct": "http://purl.org/dc/terms/", "conformsTo": "dct:conformsTo"},
            "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
        }.items()
    )
)
PARQUET = "application/x-parquet"


def render_croissant(manifest: Manifest, corpus: Corpus) -> str:
    """The document's text.

    Args:
        manifest: the version's manifest, without the entries of its pages.
        corpus: the corpus's words and tables.
    """
    story = corpus.story
    tables = [table for table in corpus.tables if table.name in manifest.rows]
    stated: dict[str, dict[str, Any]] = manifest.config.get("licences") or {}
    models = {name for model in manifest.models for name in names_of(model)}  # their terms are not those of the data
    licences = sorted({str(t["licence"]) for name, t in stated.items() if name not in models and t.get("licence")})
    document: dict[str, Any] = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": manifest.corpus,
        "description": story.summary,
        "version": f"{manifest.version.removeprefix('v')}.0.0",
        "keywords": list(story.tags),
        "citeAs": " ".join(story.references),
        **({"license": licences[0] if len(licences) == 1 else licences} if licences else {}),
        "rai:dataCollection": " ".join(story.method[:1]),
        "rai:dataCollectionRawData": f"{len(manifest.inputs):,} input files; their SHA-256s stand in manifest.json.",
        "rai:dataPreprocessingProtocol": list(story.method),
        "rai:dataAnnotationProtocol": _annotation(manifest),
        "rai:annotationsPerItem": "See the tables; each answer names its model, prompt and request.",
        "rai:machineAnnotationTools": list(manifest.models),
        "rai:dataLimitations": list(story.limits),
        "rai:dataUseCases": story.summary,
        "rai:personalSensitiveInformation": PERSONAL,
        "rai:dataReleaseMaintenancePlan": "A version never changes; a correction is a new version.",
        "distribution": [*(_file(e) for e in manifest.files if e.table), *(_file_set(table) for table in tables)],
        "recordSet": [_records(table) for table in tables],
    }
    return json.dumps({k: v for k, v in document.items() if v not in ("", [])}, indent=1, ensure_ascii=False) + "\n"


def _annotation(manifest: Manifest) -> str:
    if not manifest.models:
        return "No model was asked."
    prompts = ", ".join(manifest.prompts)
    return f"Asked: {', '.join(manifest.models)}{f', with the prompts {prompts}' if prompts else ''}."


def _file(entry: FileEntry) -> dict[str, Any]:
    return {
        "@type": "cr:FileObject",
        "@id": entry.path,
        "name": entry.path,
        "contentUrl": entry.path,
        "contentSize": f"{entry.bytes} B",
        "encodingFormat": PARQUET,
        "sha256": entry.sha256,
    }


def _file_set(table: Table) -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": f"{table.name}-files",
        "name": f"{table.name}-files",
        "description": f"The Parquet files of {table.name}; a name begins with its split.",
        "encodingFormat": PARQUET,
        "includes": f"{table.name}/*.parquet",
    }


def _records(table: Table) -> dict[str, Any]:
    fields = [_field(table, field) for field in table.schema if field.type != THINGS]  # it knows no lists of structs
    key = [{"@id": f"{table.name}/{name}"} for name in table.key]
    return {
        "@type": "cr:RecordSet",
        "@id": table.name,
        "name": table.name,
        "description": table.description,
        **({"key": key} if key else {}),
        "field": fields,
    }


def _field(table: Table, field: pa.Field) -> dict[str, Any]:
    metadata = {key.decode(): value.decode() for key, value in field.metadata.items()}
    unit = f" ({metadata['unit']})" if "unit" in metadata else ""
    repeated = pa.types.is_list(field.type)
    held = field.type.value_type if repeated else field.type
    source: dict[str, Any] = {"fileSet": {"@id": f"{table.name}-files"}, "extract": {"column": field.name}}
    if embeds(field):
        source["transform"] = {"jsonPath": "bytes"}
    return {
        "@type": "cr:Field",
        "@id": f"{table.name}/{field.name}",
        "name": f"{table.name}/{field.name}",
        "description": metadata["description"] + unit,
        "dataType": f"sc:{embeds(field)}Object" if embeds(field) else _data_type(held),
        **({"repeated": True} if repeated else {}),
        "source": source,
    }


def _data_type(type_: pa.DataType) -> str:
    if pa.types.is_boolean(type_):
        return "sc:Boolean"
    if pa.types.is_integer(type_):
        return "sc:Integer"
    if pa.types.is_floating(type_):
        return "sc:Float"
    return "sc:Text"
