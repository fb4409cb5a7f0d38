"""Virtual time, processes, and the door to the real world."""

import pytest

from tests.simulation.inside import run_inside

pytestmark = pytest.mark.slow


def test_time_passes_only_between_events() -> None:
    """An hour of virtual time takes no time."""
    run_inside(
        """
        import asyncio, time
        from tests.simulation.world import World

        async def main():
            began = time.monotonic()
            await asyncio.sleep(3600)
            return time.monotonic() - began

        assert World(0).run(main()) == 3600
        """
    )


def test_a_frozen_process_gathers_what_arrives_and_a_killed_one_runs_no_finally() -> None:
    """As after SIGSTOP and SIGKILL."""
    run_inside(
        """
        import asyncio
        from tests.simulation.world import World

        world, lines = World(0), []

        async def count(name):
            try:
                while True:
                    lines.append(name)
                    await asyncio.sleep(1)
            finally:
                lines.append("finally")

        async def main():
            frozen, killed = world.node("frozen"), world.node("killed")
            frozen.spawn(count("frozen")), killed.spawn(count("killed"))
            await asyncio.sleep(0.5)
            frozen.freeze(), killed.kill()
            await asyncio.sleep(10)
            assert sorted(lines) == ["frozen", "killed"], lines
            frozen.thaw()
            await asyncio.sleep(0.1)
            assert sorted(lines) == ["frozen", "frozen", "killed"], lines

        world.run(main())
        world.bury()
        """
    )


def test_callbacks_of_one_process_keep_their_order_and_processes_take_turns_by_seed() -> None:
    """asyncio promises the first; nothing promises an order among processes."""
    output = run_inside(
        """
        import asyncio
        from tests.simulation.world import World

        def order(seed):
            world, lines = World(seed), []

            async def main():
                for name in "abc":
                    node = world.node(name)
                    for number in range(3):
                        node.call(lines.append, f"{name}{number}")
                await asyncio.sleep(1)

            world.run(main())
            for name in "abc":
                assert [line for line in lines if line[0] == name] == [f"{name}{number}" for number in range(3)]
            return lines

        assert order(1) == order(1)
        print(len({tuple(order(seed)) for seed in range(20)}))
        """
    )
    assert int(output) > 1


@pytest.mark.parametrize(
    "escape",
    [
        "socket.socket()",
        "time.sleep(0.01)",
        "threading.Thread(target=print).start()",
        "subprocess.run(['true'])",
        "os.system('true')",
    ],
)
def test_simulated_code_cannot_reach_the_real_world(escape: str) -> None:
    """What it did there would depend on more than the seed."""
    run_inside(
        f"""
        import asyncio, os, socket, subprocess, threading, time
        from tests.simulation.chance import Escape
        from tests.simulation.world import World

        async def main():
            {escape}

        try:
            World(0).run(main())
        except Escape:
            pass
        else:
            raise AssertionError("no escape was noticed")
        """
    )


def test_a_livelock_and_a_deadlock_are_distinguished_from_a_long_wait() -> None:
    """Each ends the run with its name."""
    run_inside(
        """
        import asyncio
        from tests.simulation.chance import Escape
        from tests.simulation.world import World

        async def spin():
            while True:
                await asyncio.sleep(0)

        async def wait():
            await asyncio.Event().wait()

        for main, story in ((spin, "livelock"), (wait, "deadlock")):
            try:
                World(0).run(main())
            except Escape as escape:
                assert story in str(escape), escape
            else:
                raise AssertionError(story)
        """
    )


def test_no_module_has_bound_a_real_clock_or_source_of_chance() -> None:
    """It would escape the seed without a word."""
    run_inside(
        """
        import importlib, os, pkgutil, random, sys, time, uuid
        import tests.simulation.run
        import tokenwire.coordinator, tokenwire.worker

        real = {id(each) for each in chance.REAL.values()}
        checked = 0
        for name, module in list(sys.modules.items()):
            if not name.startswith("tokenwire"):
                continue
            for owner in [module, *(each for each in vars(module).values() if isinstance(each, type))]:
                for key, value in list(vars(owner).items()):
                    checked += 1
                    function = getattr(value, "__func__", value)
                    bound = [value, *(getattr(function, "__defaults__", None) or ())]
                    bound += (getattr(function, "__kwdefaults__", None) or {}).values()
                    assert not [each for each in bound if id(each) in real], (name, key)
        assert checked > 1000
        """
    )


def test_each_machine_has_a_wall_clock_of_its_own_and_all_have_one_time() -> None:
    """One is ahead and too fast, and is set back while its process runs: intervals are measured by another clock."""
    run_inside(
        """
        import asyncio
        import time
        from tests.simulation.wall_clock import WallClock
        from tests.simulation.world import World

        async def read():
            return time.time(), time.monotonic()

        async def main():
            right, wrong = world.node("c0"), world.node("c1")
            wrong.clock = WallClock(offset_s=60.0, drift=0.5)
            (before, since), (ahead, same) = await right.spawn(read()), await wrong.spawn(read())
            assert since == same and ahead - before > 60
            await asyncio.sleep(10)
            later, until = await wrong.spawn(read())
            assert abs(later - ahead - 15) < 0.1 and abs(until - same - 10) < 0.1
            wrong.clock.offset_s -= 120
            back, on = await wrong.spawn(read())
            assert back < ahead and on >= until

        world = World(0)
        world.run(main())
        """
    )


def test_a_short_stall_does_not_end_a_longer_one() -> None:
    """What is sent between arrives after both, and until then the lane says that it is held."""
    run_inside(
        """
        import asyncio
        from tests.simulation.network import Lane, Network
        from tests.simulation.world import World

        arrived = []

        async def main():
            network = Network(world, 0.001, 4000)
            lane = Lane(network, world.node("c0"), world.node("w0"), lambda: arrived.append(world.elapsed_s), str)
            lane.hold(world.time() + 10)
            lane.hold(world.time() + 1)
            lane.send()
            await asyncio.sleep(5)
            assert not arrived and lane.held_until > world.time()
            lane.send()
            await asyncio.sleep(10)
            assert len(arrived) == 2 and min(arrived) >= 10

        world = World(0)
        world.run(main())
        """
    )


def test_a_handler_is_cancelled_once() -> None:
    """As by gRPC: a connection that breaks later does not interrupt what the handler does at its end."""
    run_inside(
        """
        import asyncio
        from types import SimpleNamespace
        from tests.simulation.rpc_server import ServedCall
        from tests.simulation.world import World

        ended = []

        async def serve(requests, context):
            try:
                await asyncio.Event().wait()
            finally:
                await asyncio.sleep(1)
                ended.append(world.elapsed_s)

        async def main():
            server = SimpleNamespace(methods={"/Session": SimpleNamespace(stream_stream=serve)}, open_calls={})
            connection = SimpleNamespace(rpc_server=server, served={}, server=world.root, broken=True)
            call = ServedCall(connection, 1, "/Session", b"")
            for _ in range(2):
                await asyncio.sleep(0.1)
                call.cancel()
            await asyncio.sleep(2)
            assert ended and not server.open_calls

        world = World(0)
        world.run(main())
        """
    )
