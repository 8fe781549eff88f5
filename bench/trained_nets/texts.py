"""Text: prose that every Python has, sentences in other scripts, and files of this machine."""

from __future__ import annotations

import inspect
import random
import re
import sysconfig
from functools import lru_cache
from pathlib import Path

ENGLISH = [
    "Turn on the lights in the kitchen and play some music.",
    "The weather will be cloudy with a chance of rain this afternoon.",
    "Please remind me to call the dentist at half past nine tomorrow.",
    "A quick brown fox jumps over the lazy dog near the river bank.",
    "Hey Jarvis, what time is it in London right now?",
    "Set a timer for ten minutes and thirty seconds.",
    "She sells sea shells by the sea shore every Sunday morning.",
    "Numbers: one, two, three, four, five, six, seven, eight, nine, ten.",
    "The committee will publish its annual report in the second week of May.",
    "How much wood would a woodchuck chuck if it could?",
    "Alexa, stop the alarm and tell me the news.",
    "My favourite colours are blue, green and a very dark red.",
    "He walked slowly through the old town and looked at every house.",
    "Engineers measured the bridge twice before it was opened again.",
    "Could you repeat that a little louder, please?",
    "Every good boy deserves fudge, said the music teacher.",
]
THAI = [
    "ฉันรักประเทศไทยและอาหารไทยมาก",
    "วันนี้อากาศดีเราไปเดินเล่นที่สวนสาธารณะกันไหม",
    "รถไฟขบวนนี้จะออกจากกรุงเทพเวลาแปดโมงเช้า",
    "นักเรียนทุกคนต้องส่งการบ้านก่อนวันศุกร์",
    "แม่ซื้อผลไม้ที่ตลาดทุกเช้าวันเสาร์",
    "เขาทำงานเป็นวิศวกรอยู่ที่เชียงใหม่มาสิบปีแล้ว",
    "กรุณาปิดไฟก่อนออกจากห้อง",
    "หนังสือเล่มนี้สนุกมากจนวางไม่ลง",
]
CHINESE = [
    "张三在北京市朝阳区的一家公司工作。",
    "明天上午九点我们在会议室讨论新的计划。",
    "上海的天气比去年同期暖和得多。",
    "她买了两本书和三支铅笔。",
    "中国科学院发布了最新的研究成果。",
    "李四昨天从广州坐高铁去了武汉大学。",
    "这部电影的导演是谁？",
    "请把窗户关上，外面下雨了。",
]
ARABIC = [
    "ذهب الولد إلى المدرسة في الصباح الباكر",
    "كتب الطالب رسالة طويلة إلى صديقه القديم",
    "الطقس جميل اليوم والسماء صافية",
    "يعمل المهندس في شركة كبيرة في القاهرة",
    "قرأت كتابا مفيدا عن تاريخ العرب",
    "سافر الرجل مع عائلته إلى دمشق قبل سنتين",
    "تفتح المكتبة أبوابها من التاسعة صباحا حتى المساء",
    "شرب الطفل كوبا من الحليب ثم نام",
]
KHMER = [
    "ខ្ញុំស្រឡាញ់ប្រទេសកម្ពុជា",
    "ថ្ងៃនេះអាកាសធាតុល្អណាស់",
    "សិស្សទាំងអស់ទៅសាលារៀននៅពេលព្រឹក",
    "គាត់ធ្វើការនៅភ្នំពេញជាងដប់ឆ្នាំហើយ",
    "ម្តាយទិញផ្លែឈើនៅផ្សាររៀងរាល់ព្រឹក",
    "សូមបិទទ្វារមុនពេលចេញ",
    "សៀវភៅនេះល្អអានណាស់",
    "យើងនឹងធ្វើដំណើរទៅសៀមរាបនៅថ្ងៃស្អែក",
]
HEBREW = [
    "הילד הלך לבית הספר מוקדם בבוקר",
    "מזג האוויר יפה היום והשמיים בהירים",
    "היא קראה ספר מעניין על תולדות העיר",
    "המהנדס עובד בחברה גדולה בתל אביב",
    "אנא סגרו את החלון לפני היציאה",
    "הרכבת לחיפה יוצאת בשעה שמונה",
    "אמא קונה פירות בשוק בכל יום שישי",
    "החתול ישן על הכיסא ליד הדלת",
]
_PLAIN = re.compile(r"\(?([A-Za-z]+('[a-z]+)?|[0-9]+)\)?[.,:;]?")
_DOCUMENTED = ("argparse", "collections", "decimal", "difflib", "email", "inspect", "json", "logging", "textwrap",
               "threading", "typing", "unittest", "urllib.request", "zipfile")  # fmt: skip


@lru_cache(maxsize=1)
def words() -> tuple[str, ...]:
    """Words of the documentation of Python's standard library, in order."""
    found: list[str] = []
    for name in _DOCUMENTED:
        module = __import__(name, fromlist=["_"])
        texts = [inspect.getdoc(module)]
        texts += [inspect.getdoc(value) for _, value in sorted(vars(module).items()) if inspect.isclass(value)]
        for text in texts:
            found += [word for word in (text or "").split() if _PLAIN.fullmatch(word)]
    return tuple(found)


def passages(count: int, length: int = 40) -> list[str]:
    """Passages of English prose, the same on every call."""
    pool, chance = words(), random.Random(0)
    starts = [chance.randrange(len(pool) - length) for _ in range(count)]
    return [" ".join(pool[start : start + length]) for start in starts]


def joined(sentences: list[str], count: int) -> list[str]:
    """`count` texts of one to three sentences."""
    chance = random.Random(1)
    return [" ".join(chance.sample(sentences, 1 + index % 3)) for index in range(count)]


def some_files(count: int) -> list[bytes]:
    """The content of files of this machine, of as many kinds as there are."""
    python = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib")]
    roots = [*python, *(Path("/", name) for name in ("usr/share", "usr/lib", "usr/bin", "etc"))]
    kinds: dict[str, list[Path]] = {}
    for root in roots:
        for depth in ("*", "*/*", "*/*/*"):
            for path in sorted(root.glob(depth))[:3000] if root.exists() else ():
                kind = path.suffix.lower() or path.parent.name
                if len(kinds.setdefault(kind, [])) < 12:
                    kinds[kind].append(path)
    chance, found = random.Random(2), []
    turns = [chance.sample(paths, len(paths)) for _, paths in sorted(kinds.items())]
    while len(found) < count and any(turns):
        for paths in turns:
            content = _content(paths.pop()) if paths else b""
            if len(content) >= 64:
                found.append(content)
    return found[:count]


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.is_file() and path.stat().st_size < 1 << 22 else b""
    except OSError:
        return b""


def lines_of(path: Path) -> list[str]:
    """Lines of a vocabulary."""
    return path.read_text(encoding="utf-8").splitlines()
