"""Personal data out of conversations: what is found, what stays, and what is said of it."""

from __future__ import annotations

import time

import pytest

from loop.serve.redaction import redact

# Every number is a published example: RFC 5737 and 3849 (addresses), the IBAN registry, Stripe's test cards,
# Ofcom's and the FCC's numbers for drama, RFC 2606 (domains).
FOUND = {
    "Write to ana.pop@example.org.": "Write to [EMAIL_1].",
    "ana dot at home, or ana at example dot org": "ana dot at home, or [EMAIL_1]",
    "IBAN GB82 WEST 1234 5698 7654 32 please pay": "IBAN [IBAN_1] please pay",
    "to DE89370400440532013000 today": "to [IBAN_1] today",
    "card 4242 4242 4242 4242, 12/34": "card [CARD_1], 12/34",
    "amex 378282246310005": "amex [CARD_1]",
    "ring +44 20 7946 0958 at 10:30": "ring [PHONE_1] at 10:30",
    "or (650) 253-0000 now": "or [PHONE_1] now",
    "host 192.0.2.17, or 2001:db8::1.": "host [IP_1], or [IP_2].",
    "postgresql://me:hunter2@db/loop": "[URL_1]",
    "see https://example.org/a?x=1&access_token=abc": "see [URL_1]",
    "export KEY=sk-proj-abcdefghijklmnop123": "export KEY=[SECRET_1]",
    "password: correcthorse": "password: [SECRET_1]",
    "my password is hunter2!": "my password is [SECRET_1]",
    "AKIAIOSFODNN7EXAMPLE": "[SECRET_1]",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY is mine": "[SECRET_1] is mine",
    "SSN 536-90-4399": "SSN [ID_1]",
    "I live at 1600 Pennsylvania Avenue, Washington, DC 20500.": "I live at [ADDRESS_1].",
    "Hauptstra\u00dfe 5, 10115 Berlin": "[ADDRESS_1]",
    "12 rue de la Paix, Paris": "[ADDRESS_1]",
    "\uff30hone +1 \uff16\uff15\uff10-253-0000": "Phone [PHONE_1]",
    "a\u200bna@exa\u200bmple.org": "[EMAIL_1]",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----\nhi": "[SECRET_1]\nhi",
}
STAYS = (
    "card 4242 4242 4242 4241 and DE89370400440532013001 have wrong check digits",
    "on 2026-12-03 at 10:30:15 it was 1,234.56 EUR for 12345678 pieces, version 1.2.3",
    "std::vector on 127.0.0.1, localhost ::1",
    "https://example.org/ok?page=2",
    "the password reset failed; token = tokenizer.encode(text)",
    "I'm going to 3 places, the best way 5 of us know",
    "test_that_the_tokenizer_is_loaded_once(TransformersEngine)",
)


@pytest.mark.parametrize(("said", "kept"), FOUND.items())
def test_what_rules_can_know_is_replaced(said: str, kept: str) -> None:
    texts, counts = redact([said])
    assert texts == [kept]
    assert sum(counts.values()) == kept.count("_1]") + kept.count("_2]")


@pytest.mark.parametrize("said", STAYS)
def test_what_is_nobodys_stays(said: str) -> None:
    assert redact([said]) == ([said], {})


def test_a_value_has_one_placeholder_in_the_whole_conversation_and_another_value_another() -> None:
    texts, counts = redact(
        ["ana@example.org, +1 650 253 0000", "bob@example.org? ANA@example.org!", "+1 (650) 253-0000"]
    )
    assert texts == ["[EMAIL_1], [PHONE_1]", "[EMAIL_2]? [EMAIL_1]!", "[PHONE_1]"]
    assert counts == {"EMAIL": 3, "PHONE": 2}
    assert redact(["bob@example.org"])[0] == ["[EMAIL_1]"]


def test_a_name_that_is_introduced_once_is_found_everywhere_also_before_and_in_part() -> None:
    texts, counts = redact(
        [
            "Ana here.",
            "Hello! Who is Ana?",
            "My name is Ana Pop, my sister Mia and Dr. Weber know.",
            "Mia's car, anaconda",
        ]
    )
    assert texts == [
        "[NAME_1] here.",
        "Hello! Who is [NAME_1]?",
        "My name is [NAME_1], my sister [NAME_3] and Dr. [NAME_2] know.",
        "[NAME_3]'s car, anaconda",
    ]
    assert counts == {"NAME": 6}


@pytest.mark.parametrize(
    "hostile", ["a.", "1 ", ":", "a@", "https://a?", "AA11 ", "A Street ", "-----BEGIN PRIVATE KEY"]
)
def test_no_text_makes_it_slow(hostile: str) -> None:
    started = time.process_time()
    redact([hostile * (20_000 // len(hostile))])
    assert time.process_time() - started < 5
