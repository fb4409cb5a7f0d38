"""`python -m scripts.reference`, in the root of a checkout: writes the generated pages."""

from scripts.reference.pages import PAGES, ROOT

if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / name).write_text(page())
