"""Extensions of data files, by a table of our own: the machine's differs from machine to machine."""

from __future__ import annotations

from typing import Final

DEFAULT_MEDIA_TYPE: Final = "application/octet-stream"
_DEFAULT_EXTENSION: Final = ".bin"

_EXTENSIONS: Final = {
    "application/gzip": ".gz",
    "application/json": ".json",
    "application/jsonl": ".jsonl",
    "application/msword": ".doc",
    DEFAULT_MEDIA_TYPE: _DEFAULT_EXTENSION,
    "application/pdf": ".pdf",
    "application/rtf": ".rtf",
    "application/vnd.ms-excel": ".xls",
    "application/vnd.ms-powerpoint": ".ppt",
    "application/vnd.oasis.opendocument.spreadsheet": ".ods",
    "application/vnd.oasis.opendocument.text": ".odt",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": ".pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": ".xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
    "application/wasm": ".wasm",
    "application/x-tar": ".tar",
    "application/xml": ".xml",
    "application/yaml": ".yaml",
    "application/zip": ".zip",
    "audio/aac": ".aac",
    "audio/flac": ".flac",
    "audio/mp4": ".m4a",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/opus": ".opus",
    "audio/wav": ".wav",
    "audio/webm": ".weba",
    "font/otf": ".otf",
    "font/ttf": ".ttf",
    "font/woff2": ".woff2",
    "image/avif": ".avif",
    "image/bmp": ".bmp",
    "image/gif": ".gif",
    "image/heic": ".heic",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/svg+xml": ".svg",
    "image/tiff": ".tiff",
    "image/vnd.microsoft.icon": ".ico",
    "image/webp": ".webp",
    "text/calendar": ".ics",
    "text/css": ".css",
    "text/csv": ".csv",
    "text/html": ".html",
    "text/javascript": ".js",
    "text/markdown": ".md",
    "text/plain": ".txt",
    "text/tab-separated-values": ".tsv",
    "text/x-python": ".py",
    "video/mp4": ".mp4",
    "video/mpeg": ".mpeg",
    "video/ogg": ".ogv",
    "video/quicktime": ".mov",
    "video/webm": ".webm",
    "video/x-msvideo": ".avi",
}
_SYNONYMS: Final = {
    "application/javascript": ".js",
    "application/x-gzip": ".gz",
    "application/x-ndjson": ".jsonl",
    "application/x-yaml": ".yaml",
    "application/x-zip-compressed": ".zip",
    "audio/mp3": ".mp3",
    "audio/vnd.wave": ".wav",
    "audio/wave": ".wav",
    "audio/x-wav": ".wav",
    "image/jpg": ".jpg",
    "image/x-icon": ".ico",
    "text/xml": ".xml",
    "text/yaml": ".yaml",
}
_MEDIA_TYPES: Final = {extension: media_type for media_type, extension in _EXTENSIONS.items()} | {
    ".htm": "text/html",
    ".jpe": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".mp2": "audio/mpeg",
    ".mpg": "video/mpeg",
    ".oga": "audio/ogg",
    ".qt": "video/quicktime",
    ".tif": "image/tiff",
    ".yml": "application/yaml",
}


def extension_of(media_type: str) -> str:
    """The extension of a data file of this type, with its dot; ``.bin`` for a type that is not in the table."""
    plain = media_type.partition(";")[0].strip().lower()
    return _EXTENSIONS.get(plain) or _SYNONYMS.get(plain) or _DEFAULT_EXTENSION


def media_type_of(file_name: str) -> str:
    """The type that a data file's extension stands for; ``application/octet-stream`` when it stands for none."""
    dot = file_name.rfind(".")
    return _MEDIA_TYPES.get(file_name[dot:].lower(), DEFAULT_MEDIA_TYPE) if dot >= 0 else DEFAULT_MEDIA_TYPE
