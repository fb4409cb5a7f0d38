"""docs/reference/protocol.md: services, messages and fields with the comments of proto/."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from google.protobuf import descriptor_pb2 as descriptors
from grpc_tools import protoc

from scripts.reference.markdown import page as joined
from scripts.reference.markdown import table
from tokenwire.protocol import version

_PROTO = Path(__file__).parents[2] / "proto"
_FILES = ("tokenwire/v1/inference.proto", "tokenwire/v1/control.proto")
_INTRODUCTION = """# The protocol

*For those who write another worker or coordinator, or read a trace of one.* Version {major}.{minor}, package
`tokenwire.v1`; `proto/tokenwire/v1/` is the source of this page, which `make reference` generates. Fields are never
renumbered; [compatibility](compatibility.md#between-coordinators-and-workers) says which versions work together."""

_FIELD = descriptors.FieldDescriptorProto
# The numbers of fields in descriptor.proto, of which paths to comments consist.
_MESSAGES, _ENUMS, _SERVICES, _METHODS, _FIELDS, _VALUES = 4, 5, 6, 2, 2, 2
_NESTED, _NESTED_ENUMS = 3, 4
_SYNTAX = (12,)
"""What a file's first comment belongs to."""

Path_ = tuple[int, ...]


def page() -> str:
    """Return the page."""
    files = _parsed()
    introduction = _INTRODUCTION.format(major=version.MAJOR, minor=version.MINOR)
    return joined(introduction, *(part for file in files for part in _File(file).parts()))


def _parsed() -> Sequence[descriptors.FileDescriptorProto]:
    with tempfile.NamedTemporaryFile(suffix=".pb") as target:
        arguments = [f"-I{_PROTO}", "--include_source_info", f"--descriptor_set_out={target.name}", *_FILES]
        if protoc.main(["protoc", *arguments]) != 0:
            raise RuntimeError("protoc failed")
        return descriptors.FileDescriptorSet.FromString(Path(target.name).read_bytes()).file


class _File:
    """One .proto file."""

    def __init__(self, file: descriptors.FileDescriptorProto) -> None:
        self._file = file
        self._comments = {
            tuple(each.path): (each.leading_comments or each.trailing_comments).strip()
            for each in file.source_code_info.location
        }

    def parts(self) -> Iterator[str]:
        """Yield headings, texts and tables."""
        yield f"## {Path(self._file.name).name}"
        yield self._comment(_SYNTAX)
        for number, service in enumerate(self._file.service):
            yield from self._service(service, (_SERVICES, number))
        for number, message in enumerate(self._file.message_type):
            yield from self._message(message, (_MESSAGES, number), "")
        for number, enum in enumerate(self._file.enum_type):
            yield from self._enum(enum, (_ENUMS, number), "")

    def _service(self, service: descriptors.ServiceDescriptorProto, path: Path_) -> Iterator[str]:
        yield f"### Service {service.name}"
        yield self._comment(path)
        rows = [
            (
                f"`{each.name}`",
                _stream(each.input_type, each.client_streaming),
                _stream(each.output_type, each.server_streaming),
            )
            for each in service.method
        ]
        texts = [self._comment((*path, _METHODS, number)) for number in range(len(rows))]
        described = [(*row, text) for row, text in zip(rows, texts, strict=True)]
        yield table(("call", "request", "response", "description"), described)

    def _message(self, message: descriptors.DescriptorProto, path: Path_, within: str) -> Iterator[str]:
        if message.options.map_entry:
            return
        name = f"{within}{message.name}"
        yield f"### {name}"
        yield self._comment(path)
        if message.field:
            rows = [
                (f"`{field.name}`", str(field.number), _type(field, message), self._comment((*path, _FIELDS, number)))
                for number, field in enumerate(message.field)
            ]
            yield table(("field", "number", "type", "description"), rows)
        for number, nested in enumerate(message.nested_type):
            yield from self._message(nested, (*path, _NESTED, number), f"{name}.")
        for number, enum in enumerate(message.enum_type):
            yield from self._enum(enum, (*path, _NESTED_ENUMS, number), f"{name}.")

    def _enum(self, enum: descriptors.EnumDescriptorProto, path: Path_, within: str) -> Iterator[str]:
        yield f"### {within}{enum.name}"
        yield self._comment(path)
        rows = [
            (f"`{value.name}`", str(value.number), self._comment((*path, _VALUES, number)))
            for number, value in enumerate(enum.value)
        ]
        yield table(("value", "number", "description"), rows)

    def _comment(self, path: Path_) -> str:
        return "\n".join(line.strip() for line in self._comments.get(path, "").replace("<", "&lt;").splitlines())


def _link(name: str) -> str:
    short = name.removeprefix(".tokenwire.v1.")
    return f"[{short}](#{short.replace('.', '').lower()})" if short != name else name.removeprefix(".")


def _stream(name: str, streaming: bool) -> str:
    return f"stream of {_link(name)}" if streaming else _link(name)


def _type(field: _FIELD, message: descriptors.DescriptorProto) -> str:
    entries = {each.name: each for each in message.nested_type if each.options.map_entry}
    entry = entries.get(field.type_name.rpartition(".")[2])
    if entry is not None:
        return f"map of {_type(entry.field[0], entry)} to {_type(entry.field[1], entry)}"
    name = _link(field.type_name) if field.type_name else _FIELD.Type.Name(field.type).removeprefix("TYPE_").lower()
    if field.label == _FIELD.LABEL_REPEATED:
        return f"repeated {name}"
    if field.proto3_optional:
        return f"optional {name}"
    return f"{name}, one of `{message.oneof_decl[field.oneof_index].name}`" if field.HasField("oneof_index") else name
