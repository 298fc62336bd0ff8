"""Where the server may listen, and how it says that it cannot."""

from __future__ import annotations

import socket

import pytest

from loop.core.errors import UserError
from loop.serve.http.run import Door, address, bound


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False), ("10.0.0.7", False)],
)
def test_a_door_is_local_where_only_this_machine_reaches_it(host: str, is_local: bool) -> None:
    assert Door(host=host).is_local is is_local


def test_a_port_that_is_taken_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"cannot listen at 127.0.0.1 port {port}.*--port"):
            bound(Door(port=port))
        assert address(taken) == f"http://127.0.0.1:{port}"
