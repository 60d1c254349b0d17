"""Reading where a wrong value means the default and a warning, not an error."""

import re

from openclaw_a2a.model.ids import Json, JsonObject
from openclaw_a2a.settings.keys import SkillKeys, names_of
from openclaw_a2a.settings.report import Report, is_list, is_object, join, kind_of

_NOT_IN_A_PATH = re.compile(r"[\s?#%{}\\]|//|[^\x21-\x7e]")


class Forgiving:
    """The members of one object, by key; whatever is wrong is a warning with the key's path."""

    def __init__(self, path: str, values: JsonObject, *, report: Report) -> None:
        self._path = path
        self._values = values
        self._report = report

    def flag(self, key: str, *, default: bool) -> bool:
        """True or false."""
        value = self._values.get(key, default)
        if isinstance(value, bool):
            return value
        self._wrong(key, "true or false", value)
        return default

    def count(self, key: str, *, default: int) -> int:
        """A whole number of at least one."""
        value = self._values.get(key, default)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
            return value
        self._wrong(key, "a whole number from 1", value)
        return default

    def text(self, key: str) -> str | None:
        """The trimmed string; None when it is absent, blank or no string."""
        value = self._values.get(key, "")
        if not isinstance(value, str):
            self._wrong(key, "a string", value)
            return None
        return value.strip() or None

    def route(self, key: str) -> str | None:
        """A path of the server, with its leading slash; None when the default is to be used."""
        text = self.text(key)
        if text is None:
            return None
        if _NOT_IN_A_PATH.search(text):
            message = "has characters that a plain path cannot have; the default is used"
            self._report.warning(join(self._path, key), message, "format")
            return None
        return text if text.startswith("/") else f"/{text}"

    def texts(self, key: str, *, default: tuple[str, ...]) -> tuple[str, ...]:
        """The strings of a list, trimmed, each once; the default when none is left."""
        if key not in self._values:
            return default
        return self._strings(key, self._values[key]) or default

    def skills(self, key: str) -> tuple[SkillKeys, ...]:
        """The skills that have an id and a name."""
        value = self._values.get(key, [])
        if not is_list(value):
            self._wrong(key, "a list", value)
            return ()
        found = (self._skill(f"{key}[{index}]", one) for index, one in enumerate(value))
        return tuple(skill for skill in found if skill is not None)

    def _skill(self, key: str, value: Json) -> SkillKeys | None:
        path = join(self._path, key)
        if not is_object(value):
            self._report.warning(path, "is no object and is left out", "type")
            return None
        self._report.unknown_keys(path, value, names_of(SkillKeys))
        inner = Forgiving(path, value, report=self._report)
        skill_id, name = inner.text("id"), inner.text("name")
        if skill_id is None or name is None:
            self._report.warning(path, "has no id or no name and is left out", "required")
            return None
        return SkillKeys(
            id=skill_id,
            name=name,
            description=inner.text("description") or "",
            tags=inner.texts("tags", default=()),
            examples=inner.texts("examples", default=()),
        )

    def _strings(self, key: str, value: Json) -> tuple[str, ...]:
        if not is_list(value):
            self._wrong(key, "a list of strings", value)
            return ()
        strings: list[str] = []
        for index, item in enumerate(value):
            if isinstance(item, str):
                strings.append(item.strip())
            else:
                self._report.warning(
                    join(self._path, f"{key}[{index}]"),
                    f"must be a string, not {kind_of(item)}; it is left out",
                    "type",
                )
        return tuple(dict.fromkeys(text for text in strings if text))

    def _wrong(self, key: str, expected: str, value: Json) -> None:
        message = f"must be {expected}, not {kind_of(value)}; the default is used"
        self._report.warning(join(self._path, key), message, "type")
