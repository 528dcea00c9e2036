"""Tokenised text: what is noticed, what is ordinary, and how it becomes ordinary."""

from __future__ import annotations

import pytest

from workflow_src.config.preparation import NormalisationConfig
from workflow_src.data.normalise import Normaliser
from workflow_src.data.tokenised import shares_of, tokenised_share

JAPANESE = ["誰 が 一番 に 着 く か 私 に は 分か り ま せ ん 。", "私 は テニス 部員 で す 。"]
ENGLISH = ["i can 't tell who will arrive first .", "Many animals , he said , have been destroyed ."]
ORDINARY = {
    "ja": ["誰が一番に着くか私には分かりません。", "Windows 11 を使って、 メールを書く。"],
    "zh": ["我很好，谢谢。 你呢？", "他在 Google 工作了很多年。"],
    "th": ["ฉันไม่รู้ว่าใครจะมาถึงก่อน แต่ฉันจะรอ", "สัตว์จำนวนมากถูกทำลายโดยมนุษย์"],
    "en": ["I can't tell who will arrive first.", "It costs .5 dollars, or 3 of them; (yes) ?"],
    "fr": ["Est-ce que tu viens ? Oui, bien sûr !", "Il a dit : « Non. » Puis rien ; c'est tout."],
    "ko": ["나는 학생입니다.", "그는 오지 않았다, 나도."],
    "ar": ["هل ذهب إلى البيت؟", "نعم، ذهب؛ وعاد."],
    "hi": ["वह घर जाता है ।", "क्या वह जाता है ?", "हाँ, ठीक॥"],
    "bn": ["সে বাড়ি যায়।", "তুমি কি যাও?"],
    "ur": ["وہ گھر جاتا ہے۔", "کیا وہ، جاتا ہے؟"],
    "am": ["ሰላም ነው።", "አንተ፣ ሰላም፤ ነህ፧"],
    "hy": ["Բարեւ։", "Այո՝ գիտեմ։"],
}


@pytest.mark.parametrize(
    ("language", "lines"),
    [
        ("ja", JAPANESE),
        ("jpn", JAPANESE),
        ("zh", ["我 很 好 ， 谢谢 。", "他 在 Google 工作 了 很多 年 。"]),
        ("th", ["ฉัน ไม่ รู้ ว่า ใคร จะ มา ถึง ก่อน", "สัตว์ จำนวน มาก ถูก ทำลาย โดย มนุษย์"]),
        ("en", ENGLISH),
        ("fr", ["Est-ce que tu viens ? Oui , bien sûr !", "Il a dit : « Non . » Puis rien ."]),
        ("ko", ["나 는 학생 입니다 .", "그 는 오지 않았다 , 나 도 ."]),
        ("ar", ["هل ذهب إلى البيت ؟", "نعم ، ذهب ؛ وعاد ."]),
        ("hi", ["हाँ , वह घर जाता है ।", "क्या वह , जाता है ?"]),
        ("bn", ["হ্যাঁ , সে বাড়ি যায় ।", "তুমি কি , যাও ?"]),
        ("ur", ["وہ گھر جاتا ہے ۔", "کیا وہ ، جاتا ہے ؟"]),
        ("am", ["ሰላም ነው ።", "አንተ ፣ ሰላም ፤ ነህ ፧"]),
        ("hy", ["Բարեւ ։", "Այո ՝ գիտեմ ։"]),
        ("en", ["do you know him ?", "never !"]),
    ],
)
def test_tokenised_text_is_noticed(language, lines):
    assert tokenised_share(lines * 20, language) > 0.9
    # Some such lines in ordinary text are no reason to warn, nor are a few lines.
    assert tokenised_share((lines + ORDINARY.get(language, ORDINARY["ja"]) * 3) * 20, language) < 0.5
    assert tokenised_share(lines, language) == 0


@pytest.mark.parametrize("language", ORDINARY)
def test_ordinary_text_is_not(language):
    assert shares_of([("train", language, ORDINARY[language][:1] * 50), ("dev", language, ["no mark here"] * 50)]) == {}


def test_french_has_spaces_before_some_marks():
    questions = ["Tu viens ?", "Jamais !"] * 50
    assert tokenised_share(questions, "fr") == tokenised_share(questions, "fra") == 0


@pytest.mark.parametrize(
    ("language", "kind", "line", "ordinary"),
    [
        ("ja", "words", JAPANESE[0], "誰が一番に着くか私には分かりません。"),
        ("ja", "words", "Tom Smith は New York で 3 月 に 生まれ た ?", "Tom SmithはNew Yorkで3月に生まれた?"),
        ("th", "words", "ฉัน ไม่ รู้", "ฉันไม่รู้"),
        ("en", "moses", ENGLISH[0], "i can't tell who will arrive first."),
        ("en", "moses", ENGLISH[1], "Many animals, he said, have been destroyed."),
        ("en", "moses", "He did n't say `` yes '' -LRB- I think -RRB- .", 'He didn\'t say "yes" (I think).'),
        ("en", "moses", "Tom &apos;s dog &amp; cat", "Tom's dog & cat"),
        ("eng", "moses", "It 's John 's .", "It's John's."),
        ("de", "moses", "Er sagte : „ Ja ! “", "Er sagte: „Ja!“"),
        ("ar", "moses", 'قال : " ذهب إلى البيت ؟ " ( نعم ، ذهب ؛ وعاد . )', 'قال: "ذهب إلى البيت؟" (نعم، ذهب؛ وعاد.)'),
        ("ar", "moses", 'هل قال " نعم " ؟', 'هل قال "نعم"؟'),
        ("hi", "moses", "वह घर जाता है । रामः गच्छति ॥", "वह घर जाता है। रामः गच्छति॥"),
        ("bn", "moses", "সে বাড়ি যায় ।", "সে বাড়ি যায়।"),
        ("ur", "moses", "وہ گھر جاتا ہے ۔", "وہ گھر جاتا ہے۔"),
        ("am", "moses", "አንተ ፣ ሰላም ፤ ነህ ፧ ሰላም ነው ።", "አንተ፣ ሰላም፤ ነህ፧ ሰላም ነው።"),
        ("hy", "moses", "Այո ՝ գիտեմ ։", "Այո՝ գիտեմ։"),
    ],
)
def test_it_becomes_ordinary_text(language, kind, line, ordinary):
    normaliser = Normaliser(NormalisationConfig(), language, tokenised=kind)
    assert normaliser.line(line) == normaliser.reference(line) == ordinary
    # Ordinary text stays as it is.
    assert normaliser.line(ordinary) == ordinary


def test_further_steps_see_ordinary_text():
    steps = NormalisationConfig(moses_tokenise=True, lowercase=True)
    tokenised, plain = Normaliser(steps, "en", tokenised="moses"), Normaliser(steps, "en")
    assert tokenised.line("I ca n't see , Tom .") == plain.line("I can't see, Tom.")
