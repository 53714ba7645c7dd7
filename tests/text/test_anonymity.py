"""Names, ids, links and addresses go, music stays."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from earmark.schemas.errors import ConfigError
from earmark.tasks.text.anonymity import SALT_FILE, hint, key_of, salt_of, scrub


@pytest.mark.parametrize(
    ("text", "scrubbed"),
    [
        ("ask u/some_one or /u/Other-One", "ask [user] or [user]"),
        ("see u\u200b/hidden_one", "see [user]"),
        ("&#117;/spelt_out", "[user]"),
        ("[my page](https://example.org/u/me?x=1) says so", "my page says so"),
        ("![score](https://i.redd.it/a.png)", "[link]"),
        ("https://youtu.be/abc and imgur.com/a/xyz", "[link] and [link]"),
        ("https://anna:hunter22@anna-mueller.example.de/private?user=anna.mueller", "[link]"),
        ("https://host.com/?access_token=abcdefgh12345678&mail=anna@example.com", "[link]"),
        ("x.com/unsub?email=anna@example.com&name=Anna.Mueller", "[link]"),
        ("see x.com/?a=anna@example.com&b=202-555-0118, or 202-555-0119", "see [link] or [phone number]"),
        ("what we call the Baroque period (1600-1750), so", None),
        ("The text was set between 1723-1725, or 1724/1725, or 1724 – 1725.", None),
        ("what you reach for in Mozart (1756–1791) and Haydn", None),
        ("The phone recording is from 2021-03-04, the ring of 2021/3/4 10:30, the text of 2021.03.04.", None),
        ("call 555-0147 or 202-555-0118", "call [phone number] or [phone number]"),
        ("call 1750-1600 or 2021-13-04", "call [phone number] or [phone number]"),
        ("call 2098-2099", "call [phone number]"),
        ("手机13812345678谢谢", "手机[phone number]谢谢"),
        ("手机 138 1234 5678谢谢，138-1234-5678", "手机 [phone number]谢谢，[phone number]"),
        ("电话：(010)62345678转2，我的号码13812345678", "电话：[phone number]转2，我的号码[phone number]"),
        ("谢谢+8613812345678谢谢", "谢谢[phone number]谢谢"),
        ("订单13812345678，播放量13812345678，播放13812345678次，编码：13812345678", None),
        ("联系时间20210304年，第1234567小节，巴赫1685-1750年", None),
        (
            "0043 664 1234567 or 0049 (0)170 1234567, 0044 20 7183 8750",
            "[phone number] or [phone number], [phone number]",
        ),
        ("BWV 1043谢谢, BWV 0043, take 0012 345 6789, frames 0044 0045 0046 0047, 00 12 34 56 78", None),
        ("978-7-103-04567-8是书 ISBN 978-3-16-148410-0 00436641234567 = 120 bpm", None),
        ("微信号:abc_123，微信号：musicfan，加微信 musicfan", "微信号:[user]，微信号：[user]，加微信 [user]"),
        ("微信wxid_9z谢谢, VX: fan88，我的微信是musicfan。", "微信[user]谢谢, VX: [user]，我的微信是[user]。"),
        ("QQ:123456789 QQ：12345678，加QQ12345678谢谢", "QQ:[user] QQ：[user]，加QQ[user]谢谢"),
        ("qq群: 87654321，扣扣号 12345", "qq群: [user]，扣扣号 [user]"),
        ("用QQ音乐听，QQ: 好的，QQ: 120, a QQ plot of 1234567 values, the QQ 1234567 values", None),
        ("微信支付，微信公众号：古典音乐，微信Pay, 微信小程序 MusicHelper", None),
        ("write to a.b+c@example.org", "write to [email]"),
        ("write to me [at] example.com", "write to [email]"),
        ("ping @handle_7 or name#1234", "ping [user] or [user]"),
        ("as in t3_abc123", "as in [id]"),
        ("[1]: https://example.org 'x'", "[link]"),
        ("profile r/u_somebody", "profile [user]"),
        ("thanks Bob\\_77, and BOB_77's idea, _bob_77_", "thanks [user], and [user]'s idea, _[user]_"),
        ("V7/V in C# minor, 4/4 at 120 bpm: I-IV-V... r/piano knows", None),
        ("The A.B. form & the Ab.  B# is C, etc.", None),
    ],
)
def test_scrubs(text: str, scrubbed: str | None) -> None:
    assert scrub(text, ["Bob_77"]) == (text if scrubbed is None else scrubbed)
    assert re.search(hint(), text) or scrub(text) == text


NAMES = st.text("abcXYZ019_-", min_size=3, max_size=20).filter(lambda name: any(char.isalnum() for char in name))


@given(NAMES, st.text("abc ,.("))
def test_a_known_name_is_gone_wherever_it_stands(name: str, around: str) -> None:
    for text in (f"{around} {name} {around}", f"/u/{name}", f"({name})", f"{name}: {around}", f"**{name}**"):
        assert name.lower() not in scrub(text, [name]).lower()


@given(st.text())
def test_any_text_can_be_scrubbed(text: str) -> None:
    scrub(text).encode()


def test_keys_in_sql_are_those_in_python() -> None:
    sql = "left(sha256($salt || chr(0) || 'thread' || chr(0) || $id), 16)"
    found = duckdb.execute(f"SELECT {sql}", {"salt": "säure", "id": "abc"}).fetchall()
    assert found == [(key_of("säure", "thread", "abc"),)]


def test_the_store_keeps_one_salt_where_the_environment_has_none(tmp_path: Path) -> None:
    first = salt_of("EARMARK_SALT", tmp_path, {})
    assert first == salt_of("EARMARK_SALT", tmp_path, {})
    assert len(first) == 64
    assert (tmp_path / SALT_FILE).stat().st_mode & 0o077 == 0
    assert salt_of("EARMARK_SALT", tmp_path, {"EARMARK_SALT": "given by the lab itself"}) == "given by the lab itself"


def test_a_salt_that_could_be_guessed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least 16 characters, found 5"):
        salt_of("EARMARK_SALT", tmp_path, {"EARMARK_SALT": "short"})
