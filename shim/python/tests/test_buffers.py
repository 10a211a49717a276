"""Views and tickets as buffers: no copy, the right flags, and rights that live as long as their last buffer."""

import ctypes
import gc

import infera_kvd
import numpy
import pytest
from infera_kvd import Miss

NAMES = ("model", "compat")
BLOCK = numpy.arange(4096, dtype=numpy.float32)


def address(buffer):
    """Where a buffer's bytes are."""
    return numpy.frombuffer(buffer, numpy.uint8).ctypes.data


@pytest.fixture
def view(client):
    """A view of `BLOCK`."""
    assert client.put(*NAMES, b"block", BLOCK) is None
    (view,) = client.fetch(*NAMES, [b"block"])
    return view


def test_views_are_read_in_place(client, view):
    array = numpy.frombuffer(view, numpy.float32)
    assert numpy.array_equal(array, BLOCK) and not array.flags.writeable
    (again,) = client.fetch(*NAMES, [b"block"])
    assert address(again) == address(view) == array.ctypes.data, "one copy in memory"


def test_a_view_is_a_flat_read_only_buffer(view):
    buffer = memoryview(view)
    assert (buffer.readonly, buffer.format, buffer.ndim) == (True, "B", 1)
    assert buffer.shape == (view.nbytes,) and buffer.c_contiguous
    with pytest.raises(TypeError):
        buffer[0] = 1
    with pytest.raises(BufferError):
        infera_kvd.Client().load(*NAMES, [b"k"], [view])


def test_copy_to(view):
    target = numpy.zeros_like(BLOCK)
    view.copy_to(target)
    assert numpy.array_equal(target, BLOCK)
    for wrong in (bytearray(view.nbytes - 1), bytearray(view.nbytes + 1), bytearray()):
        with pytest.raises(ValueError, match="bytes"):
            view.copy_to(wrong)
    with pytest.raises(BufferError, match="writable"):
        view.copy_to(bytes(view.nbytes))
    with pytest.raises(BufferError, match="contiguous"):
        view.copy_to(numpy.zeros(2 * BLOCK.size, numpy.float32)[::2])
    with pytest.raises(TypeError):
        view.copy_to("text")


def test_the_lease_goes_back_with_the_last_buffer(client, held):
    client.put(*NAMES, b"block", BLOCK)
    (view,) = client.fetch(*NAMES, [b"block"])
    assert held() == (1, 0)
    one, two = numpy.frombuffer(view, numpy.uint8), memoryview(view)
    del view
    gc.collect()
    assert held() == (1, 0)
    part = one[10:20]
    del one
    two.release()
    assert held() == (1, 0), "a slice of an array is a buffer too"
    assert part[0] == BLOCK.view(numpy.uint8)[10]
    del part
    assert held() == (0, 0)


class KeepsOwnerOnly(numpy.ndarray):
    """Stands for torch, which releases a buffer at once and relies on its owner."""

    @classmethod
    def of(cls, source):
        with memoryview(source) as buffer:
            array = numpy.frombuffer(buffer, numpy.uint8).view(cls)
            owner, address, nbytes = buffer.obj, array.ctypes.data, buffer.nbytes
            del array
        array = numpy.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address)).view(cls)
        array.owner = owner
        return array


def test_the_owner_of_a_buffer_is_enough_to_keep_the_right(client, held):
    client.put(*NAMES, b"block", BLOCK)
    (view,) = client.fetch(*NAMES, [b"block"])
    array = KeepsOwnerOnly.of(view)
    view.release()
    assert held() == (1, 0)
    assert numpy.array_equal(array.view(numpy.float32), BLOCK)
    del array
    assert held() == (0, 0)
    (ticket,) = client.reserve([4])
    array = KeepsOwnerOnly.of(ticket)
    array[:] = 7
    with pytest.raises(BufferError, match="in use"):
        client.commit(*NAMES, [(ticket, b"k")])
    del array
    assert client.commit(*NAMES, [(ticket, b"k")]) == [None]
    assert client.get(*NAMES, b"k") == b"\7" * 4


def test_release_ends_a_view_but_not_its_buffers(view, held):
    array = numpy.frombuffer(view, numpy.float32)
    view.release()
    view.release()
    assert "released" in repr(view) and view.nbytes == BLOCK.nbytes
    with pytest.raises(BufferError, match="released"):
        memoryview(view)
    with pytest.raises(ValueError, match="released"):
        view.copy_to(bytearray(view.nbytes))
    assert held() == (1, 0) and numpy.array_equal(array, BLOCK)
    del array
    assert held() == (0, 0)


def test_a_view_is_a_context_manager(view, held):
    with view as same:
        assert same is view and held() == (1, 0)
    assert held() == (0, 0)
    with pytest.raises(RuntimeError, match="passed on"), view:
        raise RuntimeError("passed on")


def test_leased_bytes_stay_whatever_happens_to_the_key(client, view):
    array = numpy.frombuffer(view, numpy.float32)
    assert client.put(*NAMES, b"block", -BLOCK) is None
    assert client.clear(everything=True) == 1
    for number in range(100):
        client.put(*NAMES, b"%d" % number, bytes(1 << 20))
    assert numpy.array_equal(array, BLOCK)


def test_a_view_outlives_its_client_and_its_daemon(daemon, start):
    client = infera_kvd.Client(daemon.socket, deadline=30)
    client.put(*NAMES, b"block", BLOCK)
    (view,) = client.fetch(*NAMES, [b"block"])
    client.close()
    del client
    gc.collect()
    daemon.kill()
    other = infera_kvd.Client(start().socket, deadline=30)
    other.put(*NAMES, b"other", -BLOCK)
    array = numpy.frombuffer(view, numpy.float32)
    assert numpy.array_equal(array, BLOCK)
    target = numpy.zeros_like(BLOCK)
    view.copy_to(target)
    assert numpy.array_equal(target, BLOCK)


def test_tickets_are_written_in_place(client):
    (ticket,) = client.reserve([BLOCK.nbytes])
    array = numpy.frombuffer(ticket, numpy.float32)
    assert array.flags.writeable and not memoryview(ticket).readonly
    place = array.ctypes.data
    array[:] = BLOCK
    del array
    assert client.commit(*NAMES, [(ticket, b"k")]) == [None]
    (view,) = client.fetch(*NAMES, [b"k"])
    assert address(view) == place, "committed where it was written"
    assert numpy.array_equal(numpy.frombuffer(view, numpy.float32), BLOCK)


def test_a_ticket_in_use_is_not_committed(client, held):
    free, used = client.reserve([4, 4])
    free.write(b"free")
    used.write(b"used")
    array = numpy.frombuffer(used, numpy.uint8)
    items = [(free, b"f"), (used, b"u")]
    with pytest.raises(BufferError, match="in use"):
        client.commit(*NAMES, items)
    with pytest.raises(BufferError, match="in use"):
        used.cancel()
    assert client.get(*NAMES, b"f") == Miss("never_stored") and held() == (0, 2)
    array[0] = ord("U")
    del array
    assert client.commit(*NAMES, items) == [None, None]
    assert client.get(*NAMES, b"u") == b"Used"


def test_a_spent_ticket_gives_out_nothing(client, held):
    committed, cancelled = client.reserve([4, 4])
    client.commit(*NAMES, [(committed, b"k")])
    cancelled.cancel()
    cancelled.cancel()
    for ticket, word in ((committed, "committed"), (cancelled, "cancelled")):
        assert word in repr(ticket) and ticket.nbytes == 4
        with pytest.raises(BufferError, match=word):
            memoryview(ticket)
        with pytest.raises(ValueError, match=word):
            ticket.write(b"1")
        with pytest.raises(ValueError, match=word):
            client.commit(*NAMES, [(ticket, b"k")])
    with pytest.raises(ValueError, match="committed"):
        committed.cancel()
    assert held() == (0, 0)


def test_a_ticket_named_twice_spends_nothing(client):
    one, two = client.reserve([1, 1])
    with pytest.raises(ValueError, match="committed"):
        client.commit(*NAMES, [(one, b"1"), (two, b"2"), (one, b"3")])
    assert "open" in repr(one) and "open" in repr(two)
    assert client.commit(*NAMES, [(one, b"1"), (two, b"2")]) == [None, None]


def test_a_deleted_ticket_gives_its_room_back(client, held):
    tickets = client.reserve([4, 4])
    array = numpy.frombuffer(tickets[0], numpy.uint8)
    del tickets
    gc.collect()
    assert held() == (0, 1), "the array holds the ticket"
    del array
    assert held() == (0, 0)


def test_writes_stay_inside(client):
    (ticket,) = client.reserve([4])
    for data, offset in ((b"12345", 0), (b"1", 4), (b"", 5), (b"1", 2**63)):
        with pytest.raises(ValueError):
            ticket.write(data, offset)
    with pytest.raises(OverflowError):
        ticket.write(b"1", -1)
    with pytest.raises(BufferError, match="contiguous"):
        ticket.write(numpy.zeros(4, numpy.uint8)[::2])
    ticket.write(b"", 4)


def test_blocks_are_copied_from_the_arena_to_the_arena(client, view):
    (ticket,) = client.reserve([view.nbytes])
    ticket.write(view)
    memoryview(ticket)[:4] = b"\0\0\0\0"
    ticket.write(memoryview(ticket)[:-4], 4)
    client.commit(*NAMES, [(ticket, b"copy")])
    shifted = numpy.frombuffer(client.get(*NAMES, b"copy"), numpy.float32)
    assert numpy.array_equal(shifted[1:], BLOCK[:-1]), "overlapping bytes are moved"
    assert client.load(*NAMES, [b"block"], [client.reserve([view.nbytes])[0]]) == [None]
    assert client.save(*NAMES, [b"again"], [view]) == [None]
    assert client.get(*NAMES, b"again") == BLOCK.tobytes()


def test_an_empty_block_is_an_empty_buffer(client):
    client.put(*NAMES, b"empty", b"")
    (view,) = client.fetch(*NAMES, [b"empty"])
    assert view and view.nbytes == 0 and bytes(memoryview(view)) == b""
    view.copy_to(bytearray())
