"""Slow reference of sentence splitting by the rules of ``bertkit.corpus.sentences``, on str, with ``re``."""

import re

ENDS = ".!?…‥‼‽⁇⁈⁉؟۔।॥։።។။"
ENDS_AT_ONCE = "。！？｡"
OPENING = "“‘„‚«([{¿¡「『（【〈《〔［｛"
BESIDE = "\"'”’»‹›)]}*_-–—―•`´′″」』）】〉》〕］｝"
SIDE, CLOSING = f"[{re.escape(BESIDE + OPENING)}]", f"[{re.escape(BESIDE)}]"
TITLES = set(
    "Mr Mrs Ms Mx Dr Drs Prof Messrs Mme Mlle Rev Hon Gen Col Maj Capt Lt Lieut Sgt Cpl Gov Sen Rep Pres Supt Adm Cmdr "
    "Insp Fr Mt Ft vs Vs viz Viz cf Cf e.g E.g i.e I.e approx".split()
)
INSIDE = set(
    "St Jr Sr Esq Inc Ltd Co Corp Bros Ave Blvd Rd Dept Univ Assn Assoc etc al ed eds trans ibid".split()
)  # inside a sentence, unless the next word often begins one
COUNTED = set(
    "No no Nos nos Fig fig Figs figs Vol vol Vols vols pp ch Ch chap Chap sec Sec art Art Eq eq Pt pt Bk bk Pl pl par "
    "vv ll nn ca Op op Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec".split()
)
BEGINNINGS = set(
    "A After All Although An And As At Because Before Both But By Did Do Does Each Even For From He Her Here His How "
    "However I If In Is It Its Let Many Most My No Nor Not Now Of On Once One Only Or Our Perhaps She Since So Some "
    "Still Such That The Their Then There These They This Those Though To Two Under Until Upon Was We Well Were What "
    "When Where Which While Who Why With Without Yes Yet You Your".split()
)


def reference_sentences(text: str, layout: str) -> list[str]:
    blocks = re.split(r"\s*\n\s*\n\s*" if layout == "running" else "\n", text)
    split = [[block] if layout == "lines" else _split_block(block.strip()) for block in blocks]
    sentences = [" ".join(sentence.split()) for block in split for sentence in block]
    return [sentence for sentence in sentences if sentence]


def _split_block(block: str) -> list[str]:
    cuts = [0]
    for match in re.finditer(f"[{re.escape(ENDS + ENDS_AT_ONCE)}]+", block):
        ends = match.group()
        side = CLOSING if set(ends) & set(ENDS_AT_ONCE) else SIDE
        closed, space = re.match(f"({side}*)(\\s*)", block[match.end() :]).groups()
        start = match.end() + len(closed) + len(space)
        if start < len(block) and _ends(block[cuts[-1] : match.start()], ends, closed, space, block[start:]):
            cuts.append(start)
    return [block[start:end] for start, end in zip(cuts, [*cuts[1:], len(block)], strict=True)]


def _ends(before: str, ends: str, closed: str, space: str, rest: str) -> bool:
    if set(ends) & set(ENDS_AT_ONCE):
        return not (closed and not space and "\u3041" <= rest[0] <= "\u309f")
    opened = re.match(f"(?:{SIDE}|[^\\S\\n])*", rest).group()  # white space but line ends
    word = rest[len(opened) :]
    if not space or not word or not _may_begin(word[0]):
        return False
    return ends != "." or closed != "" or _ends_at_dot(before, opened, word)


def _is_letter_with_case_table(char: str) -> bool:
    return char < "\u2000" or char == "\u3000" or "\u2000" <= char < "\u2070" or "\uff00" <= char <= "\uffff"


def _is_upper(char: str) -> bool:
    return _is_letter_with_case_table(char) and (char.isupper() or char.istitle())


def _may_begin(char: str) -> bool:
    if char in "$£€@#":
        return True
    if char in ENDS + ENDS_AT_ONCE + BESIDE + OPENING:
        return False
    if _is_letter_with_case_table(char):
        return _is_upper(char) or (char.isalnum() and not char.islower())
    return char >= "\u3041" or "\u2c00" <= char < "\u3000" if char < "\U0001f000" else char > "\U0001faff"


def _ends_at_dot(before: str, opened: str, next_word: str) -> bool:
    word = re.search(r"[A-Za-z0-9.]{0,16}\Z", before).group()
    first_letters = re.match("[A-Za-z]*", next_word).group()
    begins = (opened != "" and opened[0] not in "([") or (
        _with_small_letters(first_letters) in BEGINNINGS and next_word[len(first_letters) :][:1] != "."
    )
    if not word:
        alone = re.search(r"(?:^|[^A-Za-z0-9.\u0080-\U0010ffff])(.)\Z", before, re.DOTALL)
        return begins or not (alone and alone[1] > "\x7f" and _is_upper(alone[1]))
    is_number = re.fullmatch("[0-9.]+", word) is not None
    is_item = (
        len(word) == 1 or re.fullmatch("[IVXLC]{1,5}", word) or (is_number and len(word) <= 3 + 2 * word.count("."))
    )
    if is_item and re.fullmatch(f"(?:{SIDE}|\\s)*", before[: -len(word)]):
        return False
    if is_number:
        return True
    known = _with_small_letters(word)
    if known in TITLES:
        return False
    if known in COUNTED or re.fullmatch("[a-z]", word):
        return not re.match("[0-9]|[IVXLC]{2,}(?![A-Za-z])", next_word)
    if (
        known in INSIDE
        or len(word) == 1
        or re.fullmatch(r"\.*[A-Za-z]{0,2}(\.+[A-Za-z]{1,2})+\.*|\.+[A-Za-z]{1,2}", word)
    ):
        return begins
    return True


def _with_small_letters(word: str) -> str:
    return word[:1] + word[1:].lower()
