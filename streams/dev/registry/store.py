"""Subjects and their versions, in memory. Not safe for threads: the caller takes one call at a time."""

import uuid
from collections.abc import Mapping

from streams.dev.registry.compatibility import incompatibilities, parse
from streams.dev.registry.model import (
    Compatibility,
    Imported,
    InvalidSchema,
    Parsed,
    Refused,
    Schema,
    StoredSchema,
    SubjectVersion,
)

LATEST = -1


class SchemaStore:
    """What the API's calls do."""

    def __init__(self) -> None:
        self._schemas: dict[int, StoredSchema] = {}
        self._ids: dict[tuple[str, str, object], int] = {}
        self._subjects: dict[str, list[SubjectVersion]] = {}
        self._levels: dict[str, Compatibility] = {}
        self._parsed: dict[Schema, Parsed] = {}
        self.level = Compatibility.BACKWARD

    def register(self, subject: str, schema: Schema) -> SubjectVersion:
        """Return the version of this schema in the subject, a new one when it has none. Raises Refused."""
        parsed = self.parse(schema)
        versions = self._subjects.setdefault(subject, [])
        if found := self._find(subject, schema, parsed, deleted=False):
            return found
        faults = incompatibilities(parsed, self._live(subject), self.level_of(subject))
        if faults:
            text = f'Schema being registered is incompatible with an earlier schema for subject "{subject}"'
            raise Refused(409, f"{text}, details: [{'; '.join(faults)}]")
        number = versions[-1].number + 1 if versions else 1
        version = SubjectVersion(subject, number, self._store(schema, parsed))
        versions.append(version)
        return version

    def lookup(self, subject: str, schema: Schema, *, deleted: bool) -> SubjectVersion:
        """Return the version under which the subject has this schema. Raises Refused."""
        self.versions(subject, deleted=deleted)
        found = self._find(subject, schema, self.parse(schema), deleted=deleted)
        if found is None:
            raise Refused(40403, "Schema not found")
        return found

    def schema(self, schema_id: int) -> StoredSchema:
        """Return a schema by id. Raises Refused."""
        if schema_id not in self._schemas:
            raise Refused(40403, f"Schema {schema_id} not found")
        return self._schemas[schema_id]

    def schema_by_guid(self, guid: str) -> StoredSchema:
        """Return a schema by its guid. Raises Refused."""
        for stored in self._schemas.values():
            if stored.guid == guid:
                return stored
        raise Refused(40403, f"Schema {guid} not found")

    def uses(self, schema_id: int, *, deleted: bool) -> list[SubjectVersion]:
        """Return the versions that a schema is. Raises Refused."""
        stored = self.schema(schema_id)
        everything = (version for versions in self._subjects.values() for version in versions)
        return [version for version in everything if version.stored is stored and (deleted or not version.deleted)]

    def subjects(self, *, prefix: str, deleted: bool) -> list[str]:
        """Return the names of the subjects that have a version."""
        return [
            subject
            for subject, versions in sorted(self._subjects.items())
            if subject.startswith(prefix) and any(deleted or not version.deleted for version in versions)
        ]

    def versions(self, subject: str, *, deleted: bool = False) -> list[SubjectVersion]:
        """Return the versions of a subject, oldest first. Raises Refused when there is none."""
        versions = [one for one in self._subjects.get(subject, []) if deleted or not one.deleted]
        if not versions:
            raise Refused(40401, f"Subject '{subject}' not found.")
        return versions

    def version(self, subject: str, number: int, *, deleted: bool = False) -> SubjectVersion:
        """Return one version of a subject, or its newest. Raises Refused."""
        versions = self.versions(subject, deleted=deleted)
        if number == LATEST:
            return versions[-1]
        for version in versions:
            if version.number == number:
                return version
        raise Refused(40402, f"Version {number} not found.")

    def referenced_by(self, subject: str, number: int) -> list[int]:
        """Return the ids of the schemas that import this version."""
        target = self.version(subject, number, deleted=True)
        return [
            stored.id
            for stored in self._schemas.values()
            if any((one.subject, one.version) == (subject, target.number) for one in stored.schema.references)
            and self.uses(stored.id, deleted=False)
        ]

    def delete_subject(self, subject: str, *, permanent: bool) -> list[int]:
        """Delete all versions of a subject and return their numbers; for good only after the first deletion."""
        everything = self.versions(subject, deleted=True)
        live = [version for version in everything if not version.deleted]
        if not permanent and not live:
            raise Refused(40404, f"Subject '{subject}' was soft deleted. Set permanent=true to delete permanently")
        if permanent and live:
            raise Refused(40405, f"Subject '{subject}' was not deleted first before being permanently deleted")
        chosen = everything if permanent else live
        for version in chosen:
            self._refuse_if_referenced(version)
        self._delete(chosen, permanent=permanent)
        return [version.number for version in chosen]

    def delete_version(self, subject: str, number: int, *, permanent: bool) -> int:
        """Delete one version and return its number; for good only after the first deletion."""
        version = self.version(subject, number, deleted=permanent)
        if permanent and not version.deleted:
            text = (
                f"Subject '{subject}' Version {version.number} was not deleted first before being permanently deleted"
            )
            raise Refused(40407, text)
        self._refuse_if_referenced(version)
        self._delete([version], permanent=permanent)
        return version.number

    def level_of(self, subject: str) -> Compatibility:
        """Return the level that holds for a subject: its own, else the global one."""
        return self._levels.get(subject, self.level)

    def own_level(self, subject: str) -> Compatibility:
        """Return the level set for a subject. Raises Refused when none is."""
        if subject not in self._levels:
            raise Refused(40408, f"Subject '{subject}' does not have subject-level compatibility configured")
        return self._levels[subject]

    def set_level(self, subject: str, level: Compatibility) -> None:
        """Set the level of one subject."""
        self._levels[subject] = level

    def clear_level(self, subject: str) -> Compatibility:
        """Let the global level hold for a subject again; return the one it had. Raises Refused when it had none."""
        level = self.own_level(subject)
        del self._levels[subject]
        return level

    def check(self, subject: str, schema: Schema, number: int | None) -> list[str]:
        """Return why a schema may not follow one version of a subject, or all of them; empty when it may."""
        parsed = self.parse(schema)
        earlier = self._live(subject) if number is None else [self.version(subject, number).stored.parsed]
        return incompatibilities(parsed, earlier, self.level_of(subject))

    def parse(self, schema: Schema) -> Parsed:
        """Read a schema with all that it imports. Raises InvalidSchema."""
        if schema not in self._parsed:
            self._parsed[schema] = parse(schema, self._imports(schema))
        return self._parsed[schema]

    def _imports(self, schema: Schema) -> Mapping[str, Imported]:
        imports = {}
        for reference in schema.references:
            try:
                imported = self.version(reference.subject, reference.version, deleted=True).stored.schema
            except Refused:
                where = f"subject {reference.subject} version {reference.version}"
                raise InvalidSchema(f"No schema reference found for {where}") from None
            imports[reference.name] = Imported(imported, self._imports(imported))
        return imports

    def _find(self, subject: str, schema: Schema, parsed: Parsed, *, deleted: bool) -> SubjectVersion | None:
        schema_id = self._ids.get(_identity(schema, parsed))
        versions = reversed(self._subjects.get(subject, []))
        return next((one for one in versions if one.stored.id == schema_id and (deleted or not one.deleted)), None)

    def _store(self, schema: Schema, parsed: Parsed) -> StoredSchema:
        identity = _identity(schema, parsed)
        if identity not in self._ids:
            schema_id = len(self._schemas) + 1
            self._ids[identity] = schema_id
            self._schemas[schema_id] = StoredSchema(schema_id, str(uuid.uuid4()), schema, parsed)
        return self._schemas[self._ids[identity]]

    def _live(self, subject: str) -> list[Parsed]:
        return [version.stored.parsed for version in self._subjects.get(subject, []) if not version.deleted]

    def _refuse_if_referenced(self, version: SubjectVersion) -> None:
        if users := self.referenced_by(version.subject, version.number):
            raise Refused(42206, f"One or more references exist to the schema: ids {users}")

    def _delete(self, versions: list[SubjectVersion], *, permanent: bool) -> None:
        for version in versions:
            version.deleted = True
            if permanent:
                self._subjects[version.subject].remove(version)


def _identity(schema: Schema, parsed: Parsed) -> tuple[str, str, object]:
    return schema.type, parsed.canonical, schema.references
