"""The work of tenants in Redis, which coordinators and processes share.

One script counts a report and returns the state, so all see the same tags. Only Redis' clock is read.
"""

import asyncio
import json
import secrets
from collections.abc import Sequence
from typing import Any

from tokenwire.coordinator.fleet.admission.share_store import SharedTags, ShareReport
from tokenwire.coordinator.shared_redis import RedisHealth, open_redis

_PREFIX = "tokenwire:shares:2:"
_TIMEOUT_S = 1.0
"""No request waits for it."""
LIFE_S = 2
"""How long a process counts as waiting after its last report."""
MOST_TENANTS = 1024
"""Of one model and priority, whose work is remembered while they do not wait."""

_EXCHANGE = """
local stored, now = redis.call('GET', KEYS[1]), redis.call('TIME')
local process, period, tenants = ARGV[1], ARGV[2], cjson.decode(ARGV[4])
now = now[1] + now[2] / 1000000
local state = stored and cjson.decode(stored)
  or {period = ARGV[3], virtual_time = 0, tags = {}, processes = {}}
local tags, own, elsewhere, ahead, weights = state.tags, {}, {}, {}, {}
for name, each in pairs(state.processes) do
  if now - each.at > tonumber(ARGV[5]) then
    state.processes[name] = nil
  elseif name ~= process then
    for tenant, count in pairs(each.waiting) do elsewhere[tenant] = (elsewhere[tenant] or 0) + count end
    for tenant, work in pairs(each.ahead) do ahead[tenant] = (ahead[tenant] or 0) + work end
    for tenant, weight in pairs(each.weights) do weights[tenant] = weight end
  end
end
local last = state.processes[process] or {waiting = {}, ahead = {}}
local current, all_done = {at = now, waiting = own, ahead = {}, weights = {}}, 0
for tenant, report in pairs(tenants) do
  local tag = tags[tenant] or state.virtual_time
  if not elsewhere[tenant] and not last.waiting[tenant] then tag = math.max(tag, state.virtual_time) end
  local counts = period == state.period
  local given = counts and report[1] or report[2]
  tags[tenant] = tag + given
  all_done = all_done + report[5] * (given + (counts and last.ahead[tenant] or 0) - report[4])
  if report[3] > 0 then own[tenant] = report[3] end
  if report[4] > 0 then
    current.ahead[tenant] = report[4]
    ahead[tenant] = (ahead[tenant] or 0) + report[4]
  end
  if report[3] > 0 or report[4] > 0 then
    current.weights[tenant] = report[5]
    weights[tenant] = report[5]
  end
end
local all_weights = 0
for _, weight in pairs(weights) do all_weights = all_weights + weight end
local least, done = math.huge, 0
for _, waiting in ipairs({own, elsewhere}) do
  for tenant in pairs(waiting) do
    local tag = tags[tenant] or state.virtual_time
    local without = tag - (ahead[tenant] or 0)
    if tag < least or (tag == least and without < done) then least, done = tag, without end
  end
end
if least == math.huge then
  if stored then redis.call('DEL', KEYS[1]) end
  return false
end
state.virtual_time = math.max(state.virtual_time + math.max(0, all_done) / all_weights, done)
local idle = {}
for tenant, tag in pairs(tags) do
  if not own[tenant] and not elsewhere[tenant] then
    if tag <= state.virtual_time then tags[tenant] = nil else table.insert(idle, tenant) end
  end
end
if #idle > tonumber(ARGV[6]) then
  for _, tenant in ipairs(idle) do tags[tenant] = nil end
end
state.processes[process] = next(current.weights) and current or nil
redis.call('SET', KEYS[1], cjson.encode(state), 'PX', 2000 * ARGV[5])
return cjson.encode({state.period, state.virtual_time, tags, elsewhere})
"""
"""KEYS: the state of one model and priority. ARGV: the process, the period in which it counts, the name of a new one,
its report, how long a process lives without one, and how many idle tenants are remembered."""


class RedisShareStore:
    """A ShareStore in Redis."""

    def __init__(self, url: str, password: str | None) -> None:
        """Configure the client; it connects on first use."""
        self.failures = 0
        """How often it failed."""
        self._redis = open_redis(url, password, _TIMEOUT_S)
        self._health = RedisHealth("sharing workers among the tenants of each process by itself")
        self._script = self._redis.register_script(_EXCHANGE)
        self._process = secrets.token_hex(8)

    @property
    def is_paused(self) -> bool:
        """Whether it failed a moment ago and is not asked."""
        return self._health.is_paused

    async def exchange(self, reports: Sequence[ShareReport]) -> Sequence[SharedTags | None] | None:
        """Count what this process reports, and return what all have."""
        try:
            async with asyncio.timeout(_TIMEOUT_S), self._redis.pipeline(transaction=False) as pipe:
                for report in reports:
                    await self._script([_PREFIX + report.name], self._arguments(report), client=pipe)
                told = [None if each is None else SharedTags(*json.loads(each)) for each in await pipe.execute()]
        except Exception as error:  # no server response may end the exchange
            self.failures += 1
            self._health.on_error(error)
            return None
        self._health.on_success()
        return told

    async def close(self) -> None:
        """Disconnect."""
        await self._redis.aclose()

    def _arguments(self, report: ShareReport) -> list[Any]:
        tenants = json.dumps(report.tenants)
        return [self._process, report.period, secrets.token_hex(8), tenants, LIFE_S, MOST_TENANTS]
