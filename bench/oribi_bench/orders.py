"""JSON documents as applications have them: orders of 512 bytes, most fields random, none of them noise alone.

The same number gives the same order. About a third of a document are names of fields and punctuation, a third is
random (numbers, dates, references), a third is text of few words.
"""

import random

FIRST = "anna otto mia paul lena emil clara jonas marie felix sofia leon emma luis hannah noah".split()
LAST = "schmidt smith garcia rossi novak ivanov tanaka silva jensen kim dubois weber lopez brown".split()
CITIES = "Berlin London Madrid Rome Prague Sofia Osaka Lisbon Aarhus Seoul Paris Vienna Lima Boston".split()
STATES = "new paid packed sent delivered returned".split()
METHODS = "card invoice transfer".split()
WORDS = ("please leave the parcel with neighbours at door behind house ring twice call before delivery gift wrap it thank "
         "you fragile items inside handle care back next week only in morning not after six").split()


def order(number, size, state=None):
    """One order as JSON, exactly so many bytes long."""
    pick = random.Random(number)
    below = pick.randrange
    first, last = pick.choice(FIRST), pick.choice(LAST)
    items = ",".join(f'{{"sku":"{below(1 << 32):08x}","count":{below(1, 9)},"price":{below(100, 20000) / 100}}}'
                     for _ in range(below(1, 4)))
    head = (f'{{"type":"order","id":{number},"customer":{{"id":{below(10**6)},"name":"{first.title()} {last.title()}",'
            f'"email":"{first}.{last}{below(1000)}@example.org"}},"address":{{"street":"{pick.choice(LAST).title()} Street '
            f'{below(200)}","city":"{pick.choice(CITIES)}","zip":"{below(100000):05d}"}},"created":"2026-{below(1, 13):02d}-'
            f'{below(1, 29):02d}T{below(24):02d}:{below(60):02d}:{below(60):02d}Z","state":"{state or pick.choice(STATES)}",'
            f'"items":[{items}],"payment":{{"method":"{pick.choice(METHODS)}","reference":"{pick.getrandbits(64):016x}"}},'
            '"note":"')
    room = size - len(head) - 2
    if room < 0:
        raise SystemExit(f"an order needs more than {size} bytes")
    return f'{head}{" ".join(pick.choices(WORDS, k=room // 2 + 1))[:room]}"}}'


def write(path, numbers, size, state=None):
    """A file with one order a line."""
    with open(path, "w", encoding="ascii") as out:
        out.writelines(f"{order(number, size, state)}\n" for number in numbers)
