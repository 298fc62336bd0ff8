"""Keys and values that outlive a call, for people who wait: what a conversation said is not computed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix

import torch
from torch import Tensor


@dataclass(eq=False)
class _Node:
    """What some sequences have in common after their parent node: token ids, keys and values [L, P, 2, H, D]."""

    tokens: tuple[int, ...]
    cache: Tensor
    parent: _Node | None = None
    children: dict[int, _Node] = field(default_factory=dict)
    used: int = 0

    def below(self) -> Iterator[_Node]:
        """All nodes under this one."""
        for child in self.children.values():
            yield child
            yield from child.below()


@dataclass(eq=False)
class Kept:
    """Sequences by adapter, every shared beginning once (a radix tree); at most ``most`` bytes.

    What was not used for longest leaves first, from the ends of its sequences. Adapters are told
    apart by digest (the base is None): keys and values of one say nothing of another.
    """

    most: int = 0
    held: int = 0
    roots: dict[str | None, _Node] = field(default_factory=dict)
    clock: int = 0

    def length(self, adapter: str | None, tokens: Sequence[int]) -> int:
        """How many of the first tokens are known."""
        return sum(same for _, same in self._path(adapter, tokens))

    def find(self, adapter: str | None, tokens: Sequence[int]) -> Tensor | None:
        """Keys and values of the longest known beginning, [L, P, 2, H, D]; None where nothing is known."""
        path = self._path(adapter, tokens)
        self._touch([node for node, _ in path])
        return torch.cat([node.cache[:, :same] for node, same in path], 1) if path else None

    def add(self, adapter: str | None, tokens: tuple[int, ...], *caches: Tensor) -> None:
        """Keep a copy of a sequence's keys and values, which are given in consecutive parts."""
        assert len(tokens) == sum(cache.shape[1] for cache in caches), "one position a token"
        path = self._path(adapter, tokens)
        known = sum(same for _, same in path)
        nodes = [node for node, _ in path]
        if path and path[-1][1] < len(nodes[-1].tokens) and known < len(tokens):
            nodes[-1] = self._split(*path[-1])
        if known < len(tokens):
            parent = nodes[-1] if nodes else self.roots.setdefault(adapter, _Node((), torch.empty(0)))
            rest = _after(known, caches)
            parent.children[tokens[known]] = _Node(tokens[known:], rest, parent)
            nodes.append(parent.children[tokens[known]])
            self.held += rest.nbytes
        self._touch(nodes)
        self._make_room()

    def drop(self, adapter: str) -> None:
        """Forget an adapter that is no longer loaded."""
        root = self.roots.pop(adapter, None)
        self.held -= sum(node.cache.nbytes for node in root.below()) if root is not None else 0

    def _path(self, adapter: str | None, tokens: Sequence[int]) -> list[tuple[_Node, int]]:
        """The nodes that begin the tokens, each with how many of its own tokens do."""
        path: list[tuple[_Node, int]] = []
        node, place = self.roots.get(adapter), 0
        while node is not None and place < len(tokens):
            child = node.children.get(tokens[place])
            if child is None:
                break
            same = len(commonprefix([child.tokens, tuple(tokens[place : place + len(child.tokens)])]))
            path.append((child, same))
            place += same
            node = child if same == len(child.tokens) else None
        return path

    def _split(self, node: _Node, place: int) -> _Node:
        """Cut a node in two; returns the upper one. Copies, since a view would hold all of it."""
        parent = node.parent
        assert parent is not None, "a root holds no tokens"
        upper = _Node(node.tokens[:place], node.cache[:, :place].clone(), parent, {node.tokens[place]: node}, node.used)
        parent.children[upper.tokens[0]] = upper
        node.tokens, node.cache, node.parent = node.tokens[place:], node.cache[:, place:].clone(), upper
        return upper

    def _touch(self, nodes: Sequence[_Node]) -> None:
        self.clock += 1
        for node in nodes:
            node.used = self.clock

    def _make_room(self) -> None:
        while self.held > self.most:
            leaves = (node for root in self.roots.values() for node in root.below() if not node.children)
            last = min(leaves, key=lambda node: node.used)
            assert last.parent is not None
            del last.parent.children[last.tokens[0]]
            self.held -= last.cache.nbytes


def _after(known: int, caches: Sequence[Tensor]) -> Tensor:
    """A copy of what stands in the parts after so many positions."""
    rest = []
    for cache in caches:
        rest.append(cache[:, min(known, cache.shape[1]) :])
        known = max(0, known - cache.shape[1])
    return torch.cat(rest, 1)
