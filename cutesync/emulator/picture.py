"""A trace as a picture: ``python -m cutesync trace run.json --png run.png``. Tracks are rows, time runs to the right;
what an error names is marked. Nothing but NumPy and zlib is needed.
"""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentValueError, explain, shown

_WIDTH, _LABELS, _ROW, _MOST_ROWS = 1600, 230, 14, 64
_MARK, _BLACK, _GREY, _WAIT = (220, 30, 30), (20, 20, 20), (235, 235, 235), (214, 214, 224)
_COLOURS = ((120, 170, 220), (140, 200, 150), (230, 180, 110), (190, 160, 215), (120, 200, 200), (220, 150, 160))
_FONT = bytes.fromhex(  # characters 32 to 126: five columns each, the lowest bit on top
    "0000000000 00005f0000 0007000700 147f147f14 242a7f2a12 2313086462 3649562050 0008070300 001c224100 0041221c00"
    "2a1c7f1c2a 08083e0808 0080703000 0808080808 0000606000 2010080402 3e5149453e 00427f4000 7249494946 2141494d33"
    "1814127f10 2745454539 3c4a494931 4121110907 3649494936 464949291e 0000140000 0040340000 0008142241 1414141414"
    "0041221408 0201590906 3e415d594e 7c1211127c 7f49494936 3e41414122 7f4141413e 7f49494941 7f09090901 3e41415173"
    "7f0808087f 00417f4100 2040413f01 7f08142241 7f40404040 7f021c027f 7f0408107f 3e4141413e 7f09090906 3e4151215e"
    "7f09192946 2649494932 03017f0103 3f4040403f 1f2040201f 3f4038403f 6314081463 0304780403 6159494d43 007f414141"
    "0204081020 004141417f 0402010204 4040404040 0003070800 2054547840 7f28444438 3844444428 384444287f 3854545418"
    "00087e0902 18a4a49c78 7f08040478 00447d4000 2040403d00 7f10284400 00417f4000 7c04780478 7c08040478 3844444438"
    "fc18242418 18242418fc 7c08040408 4854545424 04043f4424 3c4040207c 1c2040201c 3c4030403c 4428102844 4c9090907c"
    "4464544c44 0008364100 0000770000 0041360800 0201020402"
)


def read(path: str) -> list[dict[str, Any]]:
    """The events of a trace."""
    try:
        events = json.loads(Path(path).read_text(encoding="utf-8"))["traceEvents"]
        return [event for event in events if event["ph"] in "MXi"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        came, allowed = f"{shown(path)} ({type(error).__name__}: {error})", "a file that check --trace wrote"
        raise ArgumentValueError(explain("trace", came, allowed)) from error


def errors(events: list[dict[str, Any]]) -> list[str]:
    """One line for each error of the trace."""
    return [event["args"]["error"] for event in events if event["ph"] == "i" and "error" in event["args"]]


def draw(events: list[dict[str, Any]]) -> np.ndarray:
    """The launch of the first error, or the first launch, as rows of pixels (height, width, 3)."""
    names = {(e["pid"], e["tid"], e["name"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    marks = [e for e in events if e["ph"] == "i"]
    first = next((e["pid"] for e in (*marks, *(e for e in events if e["ph"] == "X"))), 0)
    launch = first // 10000
    processes = sorted({e["pid"] for e in events if e["ph"] != "M" and e["pid"] // 10000 == launch})
    processes.sort(key=lambda process: all(mark["pid"] != process for mark in marks))  # those with marks come first
    rows: dict[tuple[int, int], int] = {}
    heads: dict[int, int] = {}
    count = 1
    for process in processes:
        tracks = sorted({e["tid"] for e in events if e["ph"] != "M" and e["pid"] == process})
        if rows and count + len(tracks) > _MOST_ROWS:
            break
        heads[process], count = count, count + 1
        for track in tracks:
            rows[process, track], count = count, count + 1
    shown_events = [e for e in events if e["ph"] != "M" and (e["pid"], e["tid"]) in rows]
    canvas = _Canvas(count + 1, shown_events)
    for number, line in enumerate(errors(events)[:1] or ["no error"]):
        canvas.text(4, number, line, _MARK if errors(events) else _BLACK)
    for process, row in heads.items():
        canvas.text(4, row, names.get((process, 0, "process_name"), ""), _BLACK)
    for (process, track), row in rows.items():
        canvas.text(12, row, names.get((process, track, "thread_name"), "")[:36], _BLACK)
    for event in shown_events:
        (canvas.mark if event["ph"] == "i" else canvas.span)(rows[event["pid"], event["tid"]], event)
    return canvas.pixels


class _Canvas:
    def __init__(self, rows: int, events: list[dict[str, Any]]) -> None:
        self.pixels = np.full((rows * _ROW, _WIDTH, 3), 255, np.uint8)
        self.pixels[_ROW :: 2 * _ROW, _LABELS:] = _GREY
        self.start = min((e["ts"] for e in events), default=0)
        stop = max((e["ts"] + e.get("dur", 0) for e in events), default=1)
        self.scale = (_WIDTH - _LABELS - 8) / max(stop - self.start, 1)

    def x(self, time: float) -> int:
        return _LABELS + int((time - self.start) * self.scale)

    def span(self, row: int, event: dict[str, Any]) -> None:
        """Waits are grey; what runs or is in flight has the colour of its name."""
        left, right, top = self.x(event["ts"]), self.x(event["ts"] + event["dur"]), row * _ROW
        label = event["name"]
        idle = label.startswith(("wait", "is blocked", "polls"))
        colour = _WAIT if idle else _COLOURS[zlib.crc32(label.encode()) % len(_COLOURS)]
        self.pixels[top + 2 : top + _ROW - 1, left : max(right, left + 1)] = colour
        if right - left > 30:
            self.text(left + 2, row, label[: (right - left - 4) // 6], _BLACK)

    def mark(self, row: int, event: dict[str, Any]) -> None:
        """A red line through all rows, a red box in its own, and what is there."""
        at, top = min(self.x(event["ts"]), _WIDTH - 6), row * _ROW
        self.pixels[_ROW:, at] = _MARK
        self.pixels[top : top + _ROW, at - 5 : at + 6] = _MARK
        text = event["name"][:60]
        length = 6 * len(text) + 8
        left = at + 9 if at + length + 9 < _WIDTH else max(at - length, _LABELS)
        self.pixels[top + 2 : top + _ROW - 1, left : left + length - 6] = 255
        self.text(left, row, text, _MARK)

    def text(self, x: int, row: int, text: str, colour: tuple[int, int, int]) -> None:
        for i, character in enumerate(text):
            code = ord(character) - 32 if 32 <= ord(character) < 127 else ord("?") - 32
            glyph = np.frombuffer(_FONT, np.uint8)[5 * code : 5 * code + 5]
            bits = np.unpackbits(glyph[None, :], axis=0, bitorder="little").astype(bool)
            left, top = x + 6 * i, row * _ROW + 3
            if left + 5 >= _WIDTH:
                return
            self.pixels[top : top + 8, left : left + 5][bits] = colour


def save(path: str, pixels: np.ndarray) -> None:
    """Write a picture as a PNG file."""
    height, width, _ = pixels.shape
    lines = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines.tobytes(), 9)) + chunk(b"IEND", b"")
    try:
        Path(path).write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    except OSError as error:
        came = f"{shown(path)} ({type(error).__name__}: {error})"
        raise ArgumentValueError(explain("--png", came, "the path of a file that can be written")) from error
