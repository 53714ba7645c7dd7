"""Take the clips of a study from the scored systems of a version."""

from earmark.schemas.study import Study
from earmark.tasks.evaluation.finalists import scored_clips
from earmark.tasks.importers.music import ListedGeneration, MusicPrompt
from earmark.tasks.people.choosing import TrialMaterial
from earmark.tasks.store.versions import Store


def scored_material(study: Study, spec: str, store: Store) -> TrialMaterial:
    """Return the prompts of a version, grouped as its scores are, and the clips of the chosen systems.

    Raises:
        InputError: as `scored_clips`.
    """
    clips = scored_clips(store.find(spec), store, study.systems, study.finalists)
    names = {f"{one.system}/{one.prompt_id}": one for one in clips}
    return TrialMaterial(
        prompts={one.prompt_id: MusicPrompt(one.prompt_id, one.text, None, None, spec, 0) for one in clips},
        generations={
            name: ListedGeneration(name, one.prompt_id, one.system, str(one.path), spec, 0)
            for name, one in names.items()
        },
        digests={name: one.clip_sha256 for name, one in names.items()},
        groups={one.prompt_id: one.group for one in clips},
        uncertain=(),
        known=(),
    )
