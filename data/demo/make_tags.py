"""Make the demo inputs of `music-prompts`: a list of tagged tracks in MTG-Jamendo's layout, and two caption sets.

    python data/demo/make_tags.py [FOLDER]

Writes below FOLDER, by default `tags` beside this script:
    tracks.tsv      480 tracks that no one ever played, and rows that cannot be read
    tag_map.json    synonyms
    direct.json     one pipeline's captions, by path
    refined.tsv     another pipeline's captions, by id

What goes with what is drawn from how near genres lie to instruments and moods, so that some pairs never meet. The same
bytes each run: everything is drawn from fixed seeds.
"""

import json
import random
import sys
from pathlib import Path

TRACKS = 480
# Genre: its written form, the instruments and the moods that go with it, each the likelier the earlier it stands.
STYLES = {
    "ambient": ("ambient", "synthesizer pad piano bell", "calm meditative dream space dark"),
    "classical": ("classical", "violin piano cello flute harp", "romantic sad calm epic"),
    "folk": ("folk", "acousticguitar harmonica violin flute", "calm love happy nature"),
    "funk": ("funk", "bass electricguitar drums trumpet", "groovy happy party"),
    "jazz": ("jazz", "saxophone piano doublebass trumpet drums", "relaxing romantic groovy cool"),
    "metal": ("metal", "electricguitar drums bass", "dark powerful energetic epic"),
    "pop": ("pop", "piano synthesizer acousticguitar drums", "happy love uplifting summer"),
    "poprock": ("pop rock", "electricguitar drums bass piano", "energetic uplifting happy love"),
    "reggae": ("reggae", "bass drums organ trombone", "relaxing summer happy"),
    "rock": ("rock", "electricguitar drums bass organ", "energetic powerful dark"),
    "soundtrack": ("soundtrack", "strings piano horn cello", "epic film dark emotional"),
    "techno": ("techno", "drummachine synthesizer bass", "energetic dark party space"),
    "punkrock": ("punk rock", "electricguitar drums bass", "energetic powerful"),
    "rap": ("rap", "drummachine bass voice", "dark party"),
}
WRITTEN = {
    "acousticguitar": "acoustic guitar",
    "doublebass": "double bass",
    "drummachine": "drum machine",
    "electricguitar": "electric guitar",
    "pad": "synth pad",
    "bell": "bells",
    "dream": "dreamy",
    "love": "loving",
    "nature": "nature",
    "party": "party",
    "film": "filmic",
    "summer": "summery",
    "space": "spacey",
}
SPELLINGS = {"punkrock": "punk", "relaxing": "relaxed", "dream": "dreamy", "synthesizer": "synth"}
BAD_ROWS = (
    "track_0009001\tartist_000001\talbum_000001\t01/9001.mp3\tunknown\tgenre---rock",
    "track_0009002\tartist_000001\talbum_000001",
    "track_0009003\tartist_000001\talbum_000001\t../9003.mp3\t180.0\tgenre---rock",
    "track_0009004\tartist_000001\talbum_000001\t04/9004.mp3\t180.0\tcolour---blue",
    "track_0000001\tartist_000001\talbum_000001\t01/1.mp3\t180.0\tgenre---rock",
)
OPENINGS = (
    "A {mood} {genre} piece",
    "This {genre} track is {mood}",
    "An instrumental {genre} recording, {mood} throughout",
    "{genre}, {mood} from the first bar",
)
LEADS = ("led by {instrument}", "carried by {instrument}", "built around {instrument}", "with {instrument} up front")
ENDS = ("", " The mix is clean and wide.", " The arrangement grows slowly.", " It closes on a long held chord.")


def drawn(words: list[str], dice: random.Random) -> str:
    """One of the words, the first about twice as likely as the next."""
    return words[min(int(dice.expovariate(0.7)), len(words) - 1)]


def tags_of(number: int, dice: random.Random) -> tuple[str, list[str], list[str]]:
    """Genre, instruments and moods of a track."""
    names = list(STYLES)
    genre = names[number % len(names)] if number % 9 else drawn(names, dice)
    _, instruments, moods = STYLES[genre]
    chosen = dict.fromkeys(drawn(instruments.split(), dice) for _ in range(dice.randint(1, 3)))
    return genre, list(chosen), list(dict.fromkeys(drawn(moods.split(), dice) for _ in range(dice.randint(1, 2))))


def caption_of(genre: str, instrument: str, mood: str, dice: random.Random) -> str:
    """Return a sentence or two about a track."""
    said = {"genre": STYLES[genre][0], "instrument": WRITTEN.get(instrument, instrument)}
    text = f"{dice.choice(OPENINGS)} {dice.choice(LEADS)}.{dice.choice(ENDS)}"
    text = text.format(**said, mood=WRITTEN.get(mood, mood))
    text = text[0].upper() + text[1:]
    return f"{text} A warm voice sings the theme." if genre == "rap" else text


def main(folder: Path) -> None:
    """Write the inputs below a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    dice = random.Random(17)
    lines = ["TRACK_ID\tARTIST_ID\tALBUM_ID\tPATH\tDURATION\tTAGS"]
    direct, refined = [], []
    for number in range(1, TRACKS + 1):
        genre, instruments, moods = tags_of(number, dice)
        named = [("genre", genre), *(("instrument", i) for i in instruments), *(("mood/theme", m) for m in moods)]
        tags = [f"{kind}---{SPELLINGS.get(name, name) if dice.random() < 0.2 else name}" for kind, name in named]
        path = f"{number % 100:02d}/{number}.mp3"
        ids = f"track_{number:07d}\tartist_{number % 60:06d}\talbum_{number % 140:06d}"
        lines.append("\t".join([ids, path, f"{dice.uniform(90, 420):.1f}", *tags]))
        direct.append({"path": path, "caption": caption_of(genre, instruments[0], moods[0], dice)})
        refined.append(f"{number}\t{caption_of(genre, instruments[-1], moods[-1], dice)}")
    lines += BAD_ROWS
    synonyms = {"genre": {}, "instrument": {}, "mood/theme": {}}
    for tag, spelling in SPELLINGS.items():
        kind = "genre" if tag in STYLES else "instrument" if tag == "synthesizer" else "mood/theme"
        synonyms[kind][spelling] = tag
    (folder / "tracks.tsv").write_bytes("\r\n".join([*lines, ""]).encode())
    (folder / "tag_map.json").write_text(json.dumps(synonyms, indent=1) + "\n", encoding="utf-8")
    (folder / "direct.json").write_text(json.dumps(direct, indent=0) + "\n", encoding="utf-8")
    (folder / "refined.tsv").write_text("\n".join([*refined, ""]), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent / "tags")
