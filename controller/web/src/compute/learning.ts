// What a learned policy would have decided, by the parts that it has in decisions' scores.

import type { Item } from './list.svelte'

export interface Judged {
  id: string
  about: string
  atNs: number
  taken: string
  learned: string
  /** The learned policy's points for what was taken, and for its own choice. */
  score: number
  best: number
}

/** Decisions that placed something and hold the learned policy's points for two candidates or more. */
export function agreement(decisions: Item[]): Judged[] {
  const judged: Judged[] = []
  for (const decision of decisions) {
    const taken: string | undefined = decision.spec?.placements?.[0]?.node
    const points = (decision.spec?.scores ?? [])
      .filter((score: any) => typeof score.parts?.learned === 'number')
      .map((score: any) => ({ node: score.node as string, value: score.parts.learned as number }))
    const own = points.find((one: { node: string }) => one.node === taken)
    if (taken === undefined || own === undefined || points.length < 2) continue
    const best = points.reduce((a: typeof own, b: typeof own) => (b.value > a.value ? b : a))
    judged.push({
      id: decision.metadata.name, about: [decision.spec.subject_kind, ...(decision.spec.subjects ?? []).slice(0, 2)].join(' '),
      atNs: decision.metadata.created_ns ?? 0, taken, learned: best.value === own.value ? taken : best.node, score: own.value, best: best.value
    })
  }
  return judged
}
