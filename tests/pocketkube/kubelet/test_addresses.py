"""Addresses on the loopback device."""

from __future__ import annotations

from pocketkube.kubelet.addresses import Addresses


def test_addresses_are_unique_and_come_back_as_late_as_possible() -> None:
    addresses = Addresses()
    first = [addresses.for_pod() for _ in range(300)]
    assert len(set(first)) == 300
    addresses.give_back(first[0])
    assert addresses.for_pod() != first[0]
    assert not {addresses.for_node() for _ in range(300)} & set(first)
    addresses.close()


def test_two_clusters_on_one_machine_never_share_an_address() -> None:
    one, two = Addresses(), Addresses()
    assert one.block != two.block
    block = one.block
    one.close()
    again = Addresses()
    assert again.block <= block
    two.close()
    again.close()
