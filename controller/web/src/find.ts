// What the search box finds: switches, hosts, links, flows that moved.

import { whyRoute } from './app.svelte'
import type { Fabric } from './fabric'
import type { Route } from './route'
import type { Move } from './stream/types'

export interface Found {
  key: string
  kind: 'switch' | 'host' | 'link' | 'flow'
  text: string
  go: Partial<Route>
}

/** Matches every word of the text; names that begin with it come first. Returns at most `most`, and how many there are. */
export function find(fabric: Fabric, moves: Move[], text: string, most: number): { hits: Found[]; of: number } {
  const words = text.toLowerCase().split(/[\s>→-]+/).filter((word) => word !== '')
  const ranked: { rank: number; make: () => Found }[] = []
  const rank = (name: string): number | null => {
    const low = name.toLowerCase()
    if (!words.every((word) => low.includes(word))) return null
    return low.startsWith(words[0] ?? '') ? 0 : 1
  }
  fabric.names.forEach((name, i) => {
    const at = rank(name)
    const kind = i < fabric.switches ? 'switch' : 'host'
    if (at !== null) ranked.push({ rank: at + (kind === 'host' ? 2 : 0), make: () => ({ key: `n${i}`, kind, text: name, go: { selection: { kind: 'node', name } } }) })
  })
  for (let link = 0; link < fabric.links; link++) {
    const at = rank(fabric.linkName(link))
    if (at === null) continue
    const [a, b] = [fabric.names[fabric.tail(link)], fabric.names[fabric.head(link)]]
    ranked.push({ rank: at + 4, make: () => ({ key: `l${link}`, kind: 'link', text: fabric.linkName(link), go: { selection: { kind: 'link', a, b } } }) })
  }
  for (const move of moves) {
    const at = rank(move.text)
    if (at !== null) ranked.push({ rank: at + 6, make: () => ({ key: `m${move.id}`, kind: 'flow', text: move.text, go: whyRoute(move.flow) }) })
  }
  ranked.sort((a, b) => a.rank - b.rank)
  return { hits: ranked.slice(0, most).map(({ make }) => make()), of: ranked.length }
}
