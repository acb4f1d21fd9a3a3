"""Every page, for every role, in light and dark, on a desk and on a phone: without a fault, and accessible to all."""

from __future__ import annotations

import pytest

from expunge.service.access import ROLES

PAGES = {
    "overview": ROLES,
    "requests": ("update", "auditor", "operator"),
    "what-if": ("auditor", "operator"),
    "audit": ("auditor", "operator"),
    "inside": ("operator",),
}
VIEWS = [(scheme, width) for scheme in ("light", "dark") for width in ("desktop", "phone")]


@pytest.mark.parametrize(("scheme", "width"), VIEWS)
@pytest.mark.parametrize("role", ROLES)
def test_every_page_of_a_role(tab, axe, pictures, role, scheme, width):
    opened = tab(role=role, scheme=scheme, width=width)
    page = opened.page
    names = [name for name, roles in PAGES.items() if role in roles]
    links = [link.get_attribute("href") for link in page.query_selector_all("nav a")]
    assert links == [f"#/{name}" for name in names]
    for name in names:
        opened.go(name)
        assert page.locator("h1").count() == 1
        assert page.evaluate("document.activeElement.tagName") == "H1"  # a screen reader begins there
        assert page.locator("nav a[aria-current=page]").get_attribute("href") == f"#/{name}"
        assert opened.too_wide() <= 0, name
        # The checker looks at each page in each view once; roles see the same parts, or fewer.
        if role == "operator" or (scheme, width) == VIEWS[ROLES.index(role)]:
            assert opened.violations(axe) == [], name
        if pictures is not None:
            page.screenshot(path=pictures / f"{name}-{role}-{scheme}-{width}.png", full_page=True)


@pytest.mark.parametrize("role", ROLES)
def test_a_page_of_other_roles_is_refused_in_words(tab, role):
    opened = tab(role=role)
    for name, roles in PAGES.items():
        if role not in roles:
            opened.page.evaluate("name => (location.hash = `#/${name}`)", name)
            opened.page.wait_for_selector("text=This page is not for your key")
    opened.page.evaluate("location.hash = '#/nowhere'")
    opened.page.wait_for_selector("text=There is no such page")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_door(tab, axe, scheme):
    opened = tab(scheme=scheme, width="phone")
    page = opened.page
    assert page.evaluate("document.activeElement.id") == "key"
    assert opened.violations(axe) == []
    assert opened.too_wide() <= 0
    opened.enter("expunge_000000000000_" + "0" * 64)
    page.wait_for_selector("text=This key opens nothing")
    assert opened.violations(axe) == []
    opened.complaints.clear()  # the browser notes the answer 401
    assert page.evaluate("sessionStorage.length") == 0


def test_the_key_stays_in_the_tab_and_goes_with_the_lock(tab, service):
    opened = tab(role="operator")
    page, key = opened.page, service.keys["operator"]
    for name in PAGES:
        opened.go(name)
    kept = "[JSON.stringify({...sessionStorage}), JSON.stringify({...localStorage}) + document.cookie + location.href]"
    session, elsewhere = page.evaluate(kept)
    assert key in session
    assert key not in elsewhere
    assert key not in page.content()
    assert opened.context.cookies() == []
    page.reload()
    page.wait_for_selector("nav a")
    other = opened.context.new_page()
    other.goto(service.url)
    other.wait_for_selector("#key")
    page.click("text=Lock")
    page.wait_for_selector("#key")
    assert page.evaluate("JSON.stringify({...sessionStorage})") == "{}"


def test_a_checker_that_finds_nothing_would_be_noticed(tab, axe):
    opened = tab(role="predict")
    opened.page.evaluate("document.querySelector('main').append(document.createElement('img'))")
    assert any("image-alt" in each for each in opened.violations(axe))
