"""Values for questions, each either for training or held out, decided by its own hash.

A value is held out when the hash of its text says so, so the two sets can't overlap however many
are drawn. Statuses, units, day counts and booleans are few and appear in both.
"""

import zlib
from collections.abc import Callable
from random import Random
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits

# ruff: noqa: SIM905
CITIES = """
Lima Oslo Paris Berlin Madrid Rome Vienna Prague Warsaw Dublin Lisbon Athens Cairo Nairobi
Lagos Accra Tunis Rabat Dakar Harare Tokyo Osaka Kyoto Seoul Busan Beijing Shanghai Hanoi Manila
Jakarta Bangkok Delhi Mumbai Chennai Karachi Lahore Dhaka Kabul Tehran Baghdad Amman Beirut Doha
Riyadh Ankara Izmir Sofia Bucharest Belgrade Zagreb Budapest Krakow Vilnius Riga Tallinn Helsinki
Stockholm Copenhagen Bergen Hamburg Munich Cologne Zurich Geneva Milan Turin Naples Seville Porto
Lyon Nice Toulouse Brussels Antwerp Utrecht Rotterdam Boston Chicago Denver Austin Dallas Seattle
Portland Phoenix Miami Atlanta Detroit Toronto Ottawa Montreal Calgary Bogota Quito Santiago Cusco
Montevideo Asuncion Brasilia Salvador Recife Havana Sydney Melbourne Perth Brisbane Auckland
Wellington Reykjavik Edinburgh Glasgow Leeds Bristol Cardiff""".split()
CITIES += ["San Jose", "New York", "Cape Town", "Hong Kong", "Buenos Aires", "Los Angeles"]
CITIES += ["São Paulo", "Málaga", "Zürich", "La Paz", "Tel Aviv", "St. Gallen", "Den Haag"]
CURRENCIES = """USD EUR GBP JPY CHF CAD AUD NZD SEK NOK DKK PLN CZK HUF RON BGN TRY ILS ZAR EGP
NGN KES INR PKR CNY KRW THB VND IDR PHP MYR SGD HKD BRL ARS CLP COP PEN MXN UYU""".split()
FIRST = """Ana Ben Clara David Elena Farid Grace Hugo Ines Jonas Kofi Lena Marco Nadia Omar Petra
Quentin Rosa Samir Tara Uwe Vera Wei Yara Zoe""".split()
LAST = """Novak Silva Okafor Tanaka Weber Costa Haddad Jensen Kowalski Moreau Nguyen Petrov Rossi
Santos Takeda Usman Vargas Wagner Yilmaz Zhang""".split()
WORDS = """call the bank about invoice for monday meeting buy milk and bread send report to team
check price of tickets book a room pay rent water plants ask for refund new plan is ready parcel
arrived late order was wrong please ring back before noon need more paper review draft with legal
fix door lock plan trip next week renew license thank him early""".split()
TAGS = """urgent home work money travel food family garden health school private later""".split()
FOLDERS = "notes docs reports data work home tmp archive shared logs".split()
EXTENSIONS = [".txt", ".md", ".txt", ".md", ".csv", ".log", ""]
SYLLABLES = """ba be bo ca ce da di do fa fe go gu ha hi ja ke ki la le li lo ma me mi mo na ne no
pa pe po qua ra re ri ro sa se si so ta te ti to u va ve vi wo xa ya ze zu an en in on er ar st
tr sh ch br ll nt rk""".split()
ACCENTED = "áéíóúüöäñçãåøßèêîŁ"
HELD_OUT_SHARE = 8  # one in eight


def is_held_out(value: str) -> bool:
    return zlib.crc32(value.encode()) % HELD_OUT_SHARE == 0


def number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


class Values:
    """Draws values of one split: `train`, `held_out`, or `any`."""

    def __init__(self, rng: Random, split: str) -> None:
        self.rng = rng
        self.split = split

    def draw(self, make: Callable[[], str]) -> str:
        while True:
            value = make()
            if self.split == "any" or is_held_out(value) == (self.split == "held_out"):
                return value

    def _chars(self, alphabet: str, low: int, high: int) -> str:
        return "".join(self.rng.choices(alphabet, k=self.rng.randint(low, high)))

    def _pseudo_word(self) -> str:
        return "".join(self.rng.choices(SYLLABLES, k=self.rng.randint(2, 4)))

    def order_id(self) -> str:
        return self.draw(self._order_id)

    def _order_id(self) -> str:
        kind = self.rng.randrange(6)
        if kind <= 1:
            return f"{self._chars(ascii_uppercase, 1, 3)}-{self._chars(digits, 3, 6)}"
        if kind == 2:
            return self._chars(digits, 4, 8)
        if kind == 3:
            return self._chars(ascii_uppercase + digits, 5, 8)
        if kind == 4:
            return f"ord_{self._chars(ascii_letters + digits, 4, 8)}"
        return f"20{self._chars(digits, 2, 2)}-{self._chars(digits, 4, 5)}"

    def customer_id(self) -> str:
        return self.draw(self._customer_id)

    def _customer_id(self) -> str:
        kind = self.rng.randrange(4)
        if kind <= 1:
            return f"C-{self._chars(digits, 3, 6)}"
        if kind == 2:
            return f"cus_{self._chars(ascii_letters + digits, 4, 8)}"
        return f"{self._chars(ascii_uppercase, 2, 4)}{self._chars(digits, 2, 5)}"

    def amount(self) -> str:
        return self.draw(self._amount)

    def _amount(self) -> str:
        whole = self.rng.randint(1, 10 ** self.rng.randint(1, 5))
        cents = self.rng.randint(1, 99)
        if self.rng.random() < 0.3:
            return str(whole)
        return str(round(whole + cents / 100, 2))

    def currency(self) -> str:
        if self.split == "train" and self.rng.random() < 0.5:
            return self.draw(lambda: self._chars(ascii_uppercase, 3, 3))
        return self.draw(lambda: self.rng.choice(CURRENCIES))

    def city(self) -> str:
        made_up = 0.7 if self.split == "train" else 0.3
        if self.rng.random() < made_up:
            return self.draw(self._made_up_city)
        return self.draw(lambda: self.rng.choice(CITIES))

    def _made_up_city(self) -> str:
        kind = self.rng.random()
        if kind < 0.2:
            return self._chars(ascii_lowercase, 3, 9).capitalize()
        if kind < 0.3:
            return f"{self._pseudo_word().capitalize()} {self._pseudo_word().capitalize()}"
        if kind < 0.36:
            place = self.rng.randint(1, 4)
            word = self._pseudo_word()
            return (word[:place] + self.rng.choice(ACCENTED) + word[place:]).capitalize()
        return self._pseudo_word().capitalize()

    def name(self) -> str:
        def make() -> str:
            if self.rng.random() < 0.4:
                return f"{self.rng.choice(FIRST)} {self._pseudo_word().capitalize()}"
            return f"{self.rng.choice(FIRST)} {self.rng.choice(LAST)}"

        return self.draw(make)

    def path(self) -> str:
        return self.draw(self._path)

    def _path(self) -> str:
        start = self.rng.choice(["", "", "/", "/", "~/", "./"])
        folders = [self.rng.choice(FOLDERS)]
        if self.rng.random() < 0.4:
            folders.append(self._pseudo_word())
        stem = self._pseudo_word()
        if self.rng.random() < 0.4:
            stem += self.rng.choice(["-", "_", ""]) + self._chars(digits, 1, 4)
        elif self.rng.random() < 0.2:
            stem = self._chars(ascii_letters + digits, 4, 8)
        return start + "/".join([*folders, stem]) + self.rng.choice(EXTENSIONS)

    def text(self) -> str:
        return self.draw(self._text)

    def _text(self) -> str:
        words = self.rng.choices(WORDS, k=self.rng.randint(2, 6))
        for place in range(len(words)):
            kind = self.rng.random()
            if kind < 0.08:
                words[place] = self._chars(digits, 1, 4)
            elif kind < 0.2:
                words[place] = self._pseudo_word()
            elif kind < 0.25:
                words[place] = self._chars(ascii_letters + digits, 3, 8)
        text = " ".join(words)
        return text.capitalize() if self.rng.random() < 0.3 else text

    def tag(self) -> str:
        if self.rng.random() < 0.5:
            return self.draw(self._pseudo_word)
        return self.draw(lambda: self.rng.choice(TAGS))
