// Efficiency of probes over units, from the times of their runs.

import type { Item } from './list.svelte'

export interface Line {
  name: string
  points: [number, number][]
}

function median(values: number[]): number | null {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted.length === 0 ? null : sorted[sorted.length >> 1]
}

/** For each centre with runs on two numbers of units or more: their medians' efficiency against the fewest units. */
export function curvesOf(results: Item[]): Line[] {
  const times = new Map<string, Map<number, number[]>>()
  for (const result of results)
    for (const run of result.status?.runs ?? []) {
      if (run.outcome !== undefined && run.outcome !== 'succeeded') continue
      const name = [result.spec?.centre, run.unit ?? result.status?.unit].filter(Boolean).join(' ')
      const byUnits = times.get(name) ?? new Map<number, number[]>()
      times.set(name, byUnits.set(run.units, [...(byUnits.get(run.units) ?? []), ...run.run_times_s]))
    }
  const lines: Line[] = []
  for (const [name, byUnits] of times) {
    const medians = [...byUnits]
      .map(([units, seconds]) => [units, median(seconds)] as const)
      .filter((pair): pair is readonly [number, number] => pair[0] > 0 && pair[1] !== null && pair[1] > 0)
      .sort((a, b) => a[0] - b[0])
    if (medians.length < 2) continue
    const [fewest, base] = medians[0]
    lines.push({ name, points: medians.map(([units, seconds]) => [units, (fewest * base) / (units * seconds)]) })
  }
  return lines
}
