"""Words of the toy grammar and their inflection, German and English (American spelling)."""

from __future__ import annotations

import dataclasses

# class: German lemma, gender, plural ("-": none used), English synonyms, oblique singular of weak nouns.
_NOUNS = """
kin: Bruder m Brüder brother | Schwester f Schwestern sister | Vater m - father/dad | Mutter f - mother/mom
kin: Onkel m Onkel uncle | Tante f Tanten aunt | Sohn m Söhne son | Tochter f Töchter daughter
folk: Junge m Jungen boy Jungen | Mädchen n Mädchen girl | Mann m Männer man
folk: Frau f Frauen woman | Kind n Kinder child/kid
pro: Lehrer m Lehrer teacher | Ärztin f Ärztinnen doctor/physician | Arzt m Ärzte doctor/physician
pro: Student m Studenten student Studenten | Nachbar m Nachbarn neighbor Nachbarn | Lehrerin f Lehrerinnen teacher
pro: Bäcker m Bäcker baker | Künstlerin f Künstlerinnen artist | Anwalt m Anwälte lawyer/attorney
animal: Hund m Hunde dog | Katze f Katzen cat | Pferd n Pferde horse | Kaninchen n Kaninchen rabbit/bunny
text: Buch n Bücher book | Brief m Briefe letter | Gedicht n Gedichte poem | Roman m Romane novel
text: Bericht m Berichte report | Geschichte f Geschichten story/tale
press: Zeitung f Zeitungen newspaper/paper | Zeitschrift f Zeitschriften magazine
food: Apfel m Äpfel apple | Brötchen n Brötchen roll
meal: Ei n Eier egg | Suppe f Suppen soup | Fisch m Fische fish | Tomate f Tomaten tomato
cake: Kuchen m Kuchen cake | Torte f Torten pie | Keks m Kekse cookie
drink: Kaffee m - coffee | Tee m - tea | Milch f - milk | Wasser n - water
clothes: Mantel m Mäntel coat | Hemd n Hemden shirt | Jacke f Jacken jacket | Hut m Hüte hat | Kleid n Kleider dress
vehicle: Auto n Autos car/automobile | Fahrrad n Fahrräder bicycle/bike | Motorrad n Motorräder motorcycle/motorbike
vehicle: Boot n Boote boat
device: Lampe f Lampen lamp | Uhr f Uhren clock | Computer m Computer computer | Kamera f Kameras camera
thing: Schlüssel m Schlüssel key | Tasche f Taschen bag | Ball m Bälle ball | Geschenk n Geschenke gift/present
thing: Schirm m Schirme umbrella
box: Fenster n Fenster window | Tür f Türen door | Koffer m Koffer suitcase | Schachtel f Schachteln box
room: Zimmer n Zimmer room | Wohnung f Wohnungen apartment | Büro n Büros office
house: Haus n Häuser house | Turm m Türme tower | Brücke f Brücken bridge | Mauer f Mauern wall
event: Film m Filme film/movie | Konzert n Konzerte concert | Spiel n Spiele game/match | Kurs m Kurse course/class
transport: Zug m Züge train | Bus m Busse bus | Schiff n Schiffe ship
"""

# classes of nouns it suits: German stem when inflected, English synonyms.
_ADJECTIVES = """
kin pro animal house vehicle text: alt old
kin pro animal: jung young
kin pro folk animal: freundlich friendly | klug smart/clever
pro: berühmt famous | reich rich/wealthy
pro: nett nice/kind
folk: nett nice
animal house box room thing cake device clothes: klein small/little
house box room thing cake animal vehicle: groß big/large
clothes vehicle device thing: rot red | blau blue | schwarz black | grün green | schön beautiful/lovely
clothes vehicle device room house text event press: neu new
clothes vehicle device room: teur expensive/costly | billig cheap/inexpensive
vehicle device house room: modern modern
text event press: interessant interesting | lang long | langweilig boring/dull
text event: spannend exciting/thrilling | kurz short
food meal cake: lecker delicious/tasty | frisch fresh
drink: heiß hot | kalt cold
clothes box room thing vehicle: schmutzig dirty
transport: schnell fast | voll full/crowded | lang long
"""

# infinitive 3sg-present 1sg-preterite participle auxiliary, frame, object classes, English synonyms, place.
# "auf+machen" is separable. English "pick~up" may part, "look_for" may not. "!" marks states (no progressive).
_VERBS = """
kaufen kauft kaufte gekauft haben | acc | clothes+vehicle+device+text+press | buy/purchase | shop
verkaufen verkauft verkaufte verkauft haben | acc | vehicle+device+clothes | sell | -
lesen liest las gelesen haben | acc | text+press | read | any
schreiben schreibt schrieb geschrieben haben | acc | text | write | any
essen isst aß gegessen haben | acc | food+meal+cake | eat | any
trinken trinkt trank getrunken haben | acc | drink | drink | any
kochen kocht kochte gekocht haben | acc | meal | cook/prepare | home
backen backt backte gebacken haben | acc | cake | bake | home
öffnen öffnet öffnete geöffnet haben | acc | box | open | -
auf+machen macht machte gemacht haben | acc | box | open | -
zu+machen macht machte gemacht haben | acc | box | close/shut | -
suchen sucht suchte gesucht haben | acc | thing+animal+clothes | look_for/search_for | any
finden findet fand gefunden haben | acc | thing+animal+clothes+press | find | any
tragen trägt trug getragen haben | acc | clothes | wear | any
waschen wäscht wusch gewaschen haben | acc | vehicle+clothes+animal | wash | yard
reparieren repariert reparierte repariert haben | acc | vehicle+device | repair/fix | yard
bauen baut baute gebaut haben | acc | house+vehicle | build | -
malen malt malte gemalt haben | acc | house+animal+pro+folk | paint | any
putzen putzt putzte geputzt haben | acc | room | clean | -
auf+räumen räumt räumte geräumt haben | acc | room | tidy~up/clean~up | -
mieten mietet mietete gemietet haben | acc | room+vehicle | rent | -
besuchen besucht besuchte besucht haben | acc | kin+pro+folk+name | visit | -
treffen trifft traf getroffen haben | acc | kin+pro+folk+name | meet | any
ab+holen holt holte geholt haben | acc | kin+pro+folk+name | pick~up/collect | station
an+rufen ruft rief gerufen haben | acc | kin+pro+folk+name | call/phone | -
ein+laden lädt lud geladen haben | acc | kin+pro+folk+name | invite | -
kennen kennt kannte gekannt haben | acc | kin+pro+folk+name | know! | -
lieben liebt liebte geliebt haben | acc | kin+name+animal | love! | -
helfen hilft half geholfen haben | dat | kin+pro+folk+name | help | any
danken dankt dankte gedankt haben | dat | kin+pro+folk+name | thank | -
geben gibt gab gegeben haben | both | thing+clothes+cake | give | -
zeigen zeigt zeigte gezeigt haben | both | house+animal+device+press | show | -
schicken schickt schickte geschickt haben | both | text+press | send | -
warten wartet wartete gewartet haben | auf.acc | kin+pro+folk+name+transport | wait_for | station
sprechen spricht sprach gesprochen haben | mit.dat | kin+pro+folk+name | talk_to/speak_with | any
schlafen schläft schlief geschlafen haben | none | - | sleep | rest
arbeiten arbeitet arbeitete gearbeitet haben | none | - | work | any
tanzen tanzt tanzte getanzt haben | none | - | dance | any
lachen lacht lachte gelacht haben | none | - | laugh | any
weinen weint weinte geweint haben | none | - | cry/weep | any
ein+schlafen schläft schlief geschlafen sein | none | - | fall_asleep | rest
auf+stehen steht stand gestanden sein | none | - | get_up | -
an+kommen kommt kam gekommen sein | none | - | arrive | station
ab+fahren fährt fuhr gefahren sein | none | - | leave/depart | -
weg+laufen läuft lief gelaufen sein | none | - | run_away | -
gehen geht ging gegangen sein | to | - | go | -
an+fangen fängt fing gefangen haben | none | - | begin/start | -
beginnen beginnt begann begonnen haben | none | - | begin/start | -
statt+finden findet fand gefunden haben | none | - | take_place | -
versuchen versucht versuchte versucht haben | zu | - | try to | -
vergessen vergisst vergaß vergessen haben | zu | - | forget!to | -
beginnen beginnt begann begonnen haben | zu | - | begin to/start to/start ing | -
"""
# Subjects of verbs: any verb not named here has persons as subjects.
SUBJECTS = {
    "schlafen": ("person", "animal"),
    "einschlafen": ("person", "animal"),
    "weglaufen": ("person", "animal"),
    "ankommen": ("person", "transport"),
    "abfahren": ("person", "transport"),
    "anfangen": ("event",),
    "beginnen.none": ("event",),
    "stattfinden": ("event",),
}
NAMES = "Anna Peter Maria Paul Lena Thomas".split()

# Places by what one does there: German = English synonyms.
PLACES = {
    "any": "im Garten=in the garden/in the yard; im Park=in the park; zu Hause=at home; im Hotel=at the hotel; "
    "in der Schule=at school; in der Bibliothek=in the library/at the library; am See=at the lake/by the lake; "
    "im Zug=on the train; auf dem Balkon=on the balcony",
    "home": "in der Küche=in the kitchen; zu Hause=at home",
    "yard": "im Hof=in the courtyard; im Garten=in the garden/in the yard; auf der Straße=in the street/on the street",
    "shop": "auf dem Markt=at the market; in der Stadt=in the city/in town; im Internet=online/on the internet",
    "station": "am Bahnhof=at the station/at the train station; am Flughafen=at the airport; vor der Schule="
    "in front of the school; vor dem Hotel=in front of the hotel",
    "rest": "im Garten=in the garden/in the yard; unter dem Baum=under the tree; auf dem Balkon=on the balcony; "
    "zu Hause=at home; im Park=in the park",
    "to": "in den Park=to the park; zum Bahnhof=to the station/to the train station; zum Markt=to the market; "
    "ins Kino=to the movies/to the cinema; in die Schule=to school; nach Hause=home; ins Büro=to the office; "
    "ins Bett=to bed",
}
# Adverbials of time by what tense they go with.
TIMES = {
    "past": "gestern=yesterday; vorgestern=the day before yesterday; letzte Woche=last week; am Montag=on Monday; "
    "vor drei Tagen=three days ago; gestern Abend=last night/yesterday evening; heute Morgen=this morning; "
    "am Samstag=on Saturday; letzten Monat=last month; vor zwei Wochen=two weeks ago; "
    "im Sommer=in the summer/in summer",
    "future": "morgen=tomorrow; übermorgen=the day after tomorrow; nächste Woche=next week; am Freitag=on Friday; "
    "heute Abend=tonight/this evening; in zwei Tagen=in two days; nächsten Monat=next month; bald=soon; "
    "am Sonntag=on Sunday; morgen früh=tomorrow morning",
    "habit": "jeden Tag=every day; jeden Morgen=every morning; jede Woche=every week/each week; "
    "abends=in the evening/in the evenings; am Wochenende=on the weekend/on weekends; "
    "sonntags=on Sundays/every Sunday; im Winter=in the winter/in winter",
    "hour": "um acht Uhr=at eight o'clock; um zehn Uhr=at ten o'clock; um Mitternacht=at midnight; mittags=at noon",
}
MIDDLE = {"oft": "often/frequently", "immer": "always", "selten": "rarely/seldom", "nie": "never"}

_ENGLISH_VERBS = """buy bought bought; sell sold sold; read read read; write wrote written; eat ate eaten
drink drank drunk
shut shut shut; find found found; wear wore worn; build built built; meet met met; know knew known; give gave given
show showed shown; send sent sent; speak spoke spoken; sleep slept slept; cry cried cried; weep wept wept
fall fell fallen; get got gotten; leave left left; run ran run; go went gone; begin began begun; take took taken
forget forgot forgotten; try tried tried"""
_IRREGULAR = {words[0]: words[1:] for line in _ENGLISH_VERBS.replace("\n", ";").split(";") if (words := line.split())}
_DOUBLING = {"shut", "get", "run", "begin", "forget"}
_PLURALS = {"man": "men", "woman": "women", "child": "children", "fish": "fish"}


@dataclasses.dataclass(frozen=True)
class Noun:
    kind: str
    lemma: str
    gender: str
    plural: str
    english: tuple[str, ...]
    oblique: str

    def german(self, case: str, number: str) -> str:
        if number == "sg":
            return self.lemma if case == "nom" else self.oblique
        return self.plural + ("n" if case == "dat" and self.plural[-1] not in "ns" else "")


@dataclasses.dataclass(frozen=True)
class Verb:
    prefix: str
    infinitive: str
    third: str
    preterite: str
    simple_participle: str
    auxiliary: str
    frame: str
    kinds: tuple[str, ...]
    english: tuple[str, ...]
    stative: bool
    place: str

    @property
    def lemma(self) -> str:
        return self.prefix + self.infinitive

    @property
    def name(self) -> str:
        return f"{self.lemma}.{self.frame}"

    @property
    def participle(self) -> str:
        return self.prefix + self.simple_participle

    @property
    def to_infinitive(self) -> list[str]:
        return [f"{self.prefix}zu{self.infinitive}"] if self.prefix else ["zu", self.infinitive]

    def finite(self, tense: str, agreement: str) -> str:
        """The finite form without prefix; tense `present` or `past`, agreement 1sg, 3sg or pl."""
        if tense == "present":
            stem = self.infinitive.removesuffix("n")
            return {"1sg": stem, "3sg": self.third, "pl": self.infinitive}[agreement]
        ending = "n" if self.preterite.endswith("e") else "en"
        return self.preterite + (ending if agreement == "pl" else "")

    @property
    def subjects(self) -> tuple[str, ...]:
        return SUBJECTS.get(self.name, SUBJECTS.get(self.lemma, ("person",)))


def english_plural(noun: str) -> str:
    return _PLURALS.get(noun) or _with_s(noun)


def _with_s(word: str) -> str:
    """The regular plural of an English noun, or the third person of a verb. Words in -o take -es."""
    if word.endswith(("s", "x", "ch", "sh", "o")):
        return word + "es"
    return word[:-1] + "ies" if word.endswith("y") and word[-2] not in "aeiou" else word + "s"


def english_verb(verb: str, form: str) -> str:
    """A form of an English verb: base, 3sg, past, pp (participle) or ing."""
    if form == "base":
        return verb
    if form == "3sg":
        return _with_s(verb)
    if form == "ing":
        if verb in _DOUBLING:
            return verb + verb[-1] + "ing"
        return (verb[:-1] if verb.endswith("e") else verb) + "ing"
    if verb in _IRREGULAR:
        return _IRREGULAR[verb][0 if form == "past" else 1]
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + ("d" if verb.endswith("e") else "ed")


def _entries(text: str) -> list[tuple[str, list[str]]]:
    return [
        (head.strip(), entry.split())
        for head, body in (line.split(":") for line in text.strip().splitlines())
        for entry in body.split("|")
    ]


def _verb(line: str) -> Verb:
    forms, frame, kinds, english, place = (part.strip() for part in line.split("|"))
    infinitive, third, preterite, participle, auxiliary = forms.split()
    prefix, _, infinitive = infinitive.rpartition("+")
    synonyms = tuple(english.replace("!", " " if frame == "zu" else "").split("/"))
    objects = tuple(kinds.split("+")) if kinds != "-" else ()
    meaning = (frame, objects, synonyms, "!" in english, "" if place == "-" else place)
    return Verb(prefix, infinitive, third, preterite, participle, auxiliary, *meaning)


def pairs(text: str) -> list[tuple[list[str], list[list[str]]]]:
    """`German=English/English; ...` as lists of words."""
    split = [entry.split("=") for entry in text.split(";")]
    return [(german.split(), [words.split() for words in english.split("/")]) for german, english in split]


NOUNS = [
    Noun(kind, e[0], e[1], e[2], tuple(e[3].split("/")), e[4] if len(e) > 4 else e[0]) for kind, e in _entries(_NOUNS)
]
ADJECTIVES = [(set(kinds.split()), e[0], e[1].split("/")) for kinds, e in _entries(_ADJECTIVES)]
VERBS = [_verb(line) for line in _VERBS.strip().splitlines()]
