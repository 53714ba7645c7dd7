"""Restrict templates from outside: they place values, choose and repeat, and can do nothing else.

A shared config's prompt is a stranger's program. So it is checked before compilation: no call except for clips and
images, no assignment, no multiplication, loops only over given values. Accepted templates run in Jinja's sandbox,
without globals, and their output ends at `MOST_SIGNS`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateSyntaxError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from earmark.schemas.unseen import seen

MOST_SIGNS = 4_000_000  # characters in a message
MOST_SOURCE = 200_000  # characters of a template
DEEPEST = 3  # nested loops
LEVELS = 50  # nodes inside each other; Python compiles no hundred
MOST_DIGITS = 20  # to round to
LONGEST_BETWEEN = 100  # characters between the items of a join
CALLS = ("audio", "image")
FILTERS = ("default", "first", "join", "last", "length", "lower", "round", "trim", "upper")  # and `fence`
_ALLOWED = (
    nodes.Template, nodes.Output, nodes.TemplateData, nodes.Name, nodes.Const, nodes.If, nodes.For, nodes.CondExpr,
    nodes.Filter, nodes.Test, nodes.Call, nodes.Keyword, nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Compare,
    nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.Add, nodes.Sub, nodes.Concat, nodes.List, nodes.Tuple,
)  # fmt: skip


def environment(fence: Callable[..., str], finalize: Callable[[Any], Any]) -> ImmutableSandboxedEnvironment:
    """Make the environment of templates, with the filters of `FILTERS` and `fence`, and nothing global."""
    made = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=finalize, autoescape=False
    )
    made.globals.clear()
    made.filters = {name: made.filters[name] for name in FILTERS} | {"fence": fence}
    return made


def parse(env: ImmutableSandboxedEnvironment, text: str) -> nodes.Template:
    """Parse a template, and refuse endless work and anything but writing text.

    Raises:
        TemplateSyntaxError: it is refused, or is no template; with the line.
    """
    if len(text) > MOST_SOURCE:
        raise TemplateSyntaxError(f"expected at most {MOST_SOURCE:,} characters, found {len(text):,}", 1)
    try:
        tree = env.parse(text)
        _check(tree, 0, 0)
    except RecursionError:
        raise TemplateSyntaxError("expected expressions of a few levels, found a deeper one", 1) from None
    except ValueError as error:  # a number of thousands of digits
        raise TemplateSyntaxError(str(error), 1) from None
    return tree


def _check(node: nodes.Node, depth: int, level: int) -> None:
    if not isinstance(node, _ALLOWED):
        raise TemplateSyntaxError(
            f"expected text, values, if and for, found {type(node).__name__.lower()}", node.lineno
        )
    if level > LEVELS:
        raise TemplateSyntaxError(f"expected expressions of a few levels, found more than {LEVELS}", node.lineno)
    if isinstance(node, nodes.Filter):
        _check_filter(node)
    if isinstance(node, nodes.Call) and not (isinstance(node.node, nodes.Name) and node.node.name in CALLS):
        raise TemplateSyntaxError(f"expected no call but {' and '.join(CALLS)}", node.lineno)
    if isinstance(node, nodes.For):
        depth += 1
        if depth > DEEPEST or node.recursive or not _is_given(node.iter):
            raise TemplateSyntaxError(
                f"expected a loop over a value of the prompt, at most {DEEPEST} loops in one another", node.lineno
            )
    for inner in node.iter_child_nodes():
        _check(inner, depth, level + 1)


def _check_filter(node: nodes.Filter) -> None:
    """Refuse an unknown filter, and arguments by which one writes more than it was given, or works without end."""
    if node.name not in (*FILTERS, "fence"):
        raise TemplateSyntaxError(f"no filter '{node.name}'; there are {', '.join((*FILTERS, 'fence'))}", node.lineno)
    if node.name not in ("join", "round"):
        return
    given = [*node.args, *(pair.value for pair in node.kwargs)]
    if (
        node.dyn_args
        or node.dyn_kwargs
        or not all(isinstance(one, nodes.Const) and _is_short(one.value) for one in given)
    ):
        raise TemplateSyntaxError(
            f"expected constants in {node.name}: at most {LONGEST_BETWEEN} characters, or {MOST_DIGITS} digits",
            node.lineno,
        )
    if node.name == "join" and any(one.name == "join" for one in node.find_all(nodes.Filter)):
        raise TemplateSyntaxError("expected a join of values, found one of a join", node.lineno)


def _is_short(value: Any) -> bool:
    return len(value) <= LONGEST_BETWEEN if isinstance(value, str) else value is None or 0 <= value <= MOST_DIGITS


def _is_given(node: nodes.Node) -> bool:
    """Return whether an expression is a value of the prompt, or a part of one."""
    while isinstance(node, nodes.Getattr | nodes.Getitem):
        node = node.node
    return isinstance(node, nodes.Name)


def render(template: Template, values: Mapping[str, Any]) -> str:
    """Return a template's output.

    Raises:
        ValueError: it is longer than `MOST_SIGNS`.
        jinja2.TemplateError: a value is missing, or may not be read.
    """
    pieces, length = [], 0
    for piece in template.generate(values):
        pieces.append(piece)
        length += len(piece)
        if length > MOST_SIGNS:
            raise ValueError(f"expected a message of at most {MOST_SIGNS:,} characters, found a longer one")
    return "".join(pieces)


_WORDS = (
    "s|bos|eos|pad|unk|mask|cls|sep|think|start_of_turn|end_of_turn|(?:start|end)_of_(?:image|audio)"
    "|tools|tool_calls?|tool_response|function_call|image|img|video|audio|speech|sound|image_placeholder|image_id"
    "|im_start|im_end|im_patch|vision_start|vision_end|(?:image|audio)_soft_token|fake_token_around_image|img_context"
    "|[a-z_]+_token|extra_id_\\d+|unused\\d+|sop|eop"
)
"""Names between < and > in the vocabularies and chat templates of common models; case does not matter."""
_BRACKETS = (
    "INST|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|AVAILABLE_TOOLS|SYSTEM_PROMPT|IMG|IMG_BREAK|IMG_END|AUDIO|BEGIN_AUDIO"
    "|THINK|gMASK|sMASK|MASK|CLS|SEP|PAD|UNK"
)
_MARKS = re.compile(
    rf"<\|(?=[^\s|])|(?<=[^\s|])\|>|<(?=<?/?(?i:sys)>>|/?(?i:{_WORDS})\s*/?>)|\[(?=/?(?:{_BRACKETS})\])"
)
# Full-width and small forms as tokenizers with NFKC read them; one character each, so places stay.
_PLAIN = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)} | {
    0xFE64: "<", 0xFE65: ">", 0xFE5D: "[", 0xFE5E: "]"
}  # fmt: skip


def neutral(text: str) -> str:
    """Remove invisible characters, and put a space in marks such as `<|im_start|>` and in their full-width forms."""
    plain = seen(text)
    as_read = plain if plain.isascii() else plain.translate(_PLAIN)
    parts, at = [], 0
    for mark in _MARKS.finditer(as_read):
        cut = mark.start() if mark.group() == "|>" else mark.end()
        parts += [plain[at:cut], " "]
        at = cut
    return "".join([*parts, plain[at:]])
