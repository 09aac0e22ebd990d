// Is anything wrong? One sentence from events, links and sources, and the worst links.

import type { Fabric } from './fabric'
import { plural } from './format'
import { badness } from './map/ramp'
import { conditionOf, excessNsOf, lossOf, shareOf } from './stream/figures'
import type { FabricEvent, Heartbeat } from './stream/types'

export type Level = 'good' | 'warning' | 'critical' | 'unknown'

export interface Verdict {
  level: Level
  sentence: string
}

export interface LinkRow {
  link: number
  name: string
  condition: ReturnType<typeof conditionOf>
  share: number | null
  bps: number | null
  excessNs: number | null
  loss: number | null
}

export function linkRow(fabric: Fabric, planes: Uint8Array, link: number): LinkRow {
  const share = shareOf(planes[link])
  const condition = conditionOf(planes[link])
  return {
    link,
    name: fabric.linkName(link),
    condition,
    share,
    bps: share === null ? null : share * fabric.cables[link >> 1].rate_bps,
    excessNs: condition === 'up' ? excessNsOf(planes[fabric.links + link]) : null,
    loss: condition === 'up' ? lossOf(planes[2 * fabric.links + link]) : null
  }
}

/** Links from the worst on: down, then losing, then by use. */
export function worstLinks(fabric: Fabric, planes: Uint8Array, count: number): LinkRow[] {
  const score = (link: number) => {
    const use = badness(planes, fabric.links, link, 'utilisation')
    if (use < 0 || use >= 1000) return use
    const lost = planes[2 * fabric.links + link]
    // 1e-4 lost (byte 148) outweighs any utilisation.
    return use + (lost >= 148 && lost < 255 ? 300 + lost : 0)
  }
  const links = Array.from({ length: fabric.links }, (_, link) => link)
  const scores = Float64Array.from(links, score)
  return links
    .sort((a, b) => scores[b] - scores[a] || a - b)
    .slice(0, count)
    .filter((link) => scores[link] >= 0)
    .map((link) => linkRow(fabric, planes, link))
}

function list(parts: string[]): string {
  return parts.length < 2 ? (parts[0] ?? '') : `${parts.slice(0, -1).join(', ')} and ${parts.at(-1)}`
}

/** Open events that nobody looks after. */
export function alarms(events: FabricEvent[]): FabricEvent[] {
  return events.filter((event) => event.closed_ns === null && event.note === null)
}

export function verdict(
  fabric: Fabric | null,
  planes: Uint8Array | null,
  events: FabricEvent[],
  heartbeat: Heartbeat | null,
  stale: boolean
): Verdict {
  const problems = (heartbeat?.sources ?? []).filter((source) => source.problem !== null)
  if (fabric === null) return { level: 'unknown', sentence: 'Waiting for the topology.' }
  if (planes === null || stale) {
    const because = problems.length > 0 ? `: ${problems[0].name}: ${problems[0].problem}` : ''
    return { level: 'unknown', sentence: `Nothing can be said: ${planes === null ? 'no figures have come yet' : 'the figures are old'}${because}.` }
  }
  let down = 0
  let full = 0
  let measured = 0
  for (let link = 0; link < fabric.links; link++) {
    const condition = conditionOf(planes[link])
    if (condition === 'down') down++
    if (condition === 'up') {
      measured++
      if (planes[link] >= 238) full++
    }
  }
  const open = alarms(events)
  const critical = open.filter((event) => event.severity === 'critical').length
  const parts: string[] = []
  if (down > 0) parts.push(`${plural(down, 'link')} ${down === 1 ? 'is' : 'are'} down`)
  if (critical > 0) parts.push(`${plural(critical, 'critical event')} ${critical === 1 ? 'is' : 'are'} open`)
  if (full > 0) parts.push(`${plural(full, 'link')} ${full === 1 ? 'is' : 'are'} above 95 %`)
  const warnings = open.length - critical
  if (parts.length === 0 && warnings > 0) parts.push(`${plural(warnings, 'warning')} ${warnings === 1 ? 'is' : 'are'} open`)
  if (problems.length > 0) parts.push(`${list(problems.map((source) => source.name))} ${problems.length === 1 ? 'has' : 'have'} a problem`)
  const level: Level = down > 0 || critical > 0 ? 'critical' : parts.length > 0 ? 'warning' : 'good'
  if (parts.length > 0) return { level, sentence: `${list(parts)}.`.replace(/^./, (first) => first.toUpperCase()) }
  if (measured === 0) return { level: 'unknown', sentence: 'Nothing can be said: no link reports telemetry.' }
  const missing = fabric.links - measured
  const unmeasured = missing > 0 ? ` ${plural(missing, 'link')} without telemetry.` : ''
  const noted = events.filter((event) => event.closed_ns === null).length
  const acknowledged = noted > 0 ? ` ${plural(noted, 'acknowledged event')} ${noted === 1 ? 'is' : 'are'} open.` : ''
  return { level: 'good', sentence: `All is well on ${plural(measured, 'measured link')}.${unmeasured}${acknowledged}` }
}
