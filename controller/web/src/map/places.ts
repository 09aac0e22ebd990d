// Where one has dragged nodes, kept by the browser for each topology, by name.

import type { Fabric, Places } from '../fabric'

const KEY = 'millrace places '
const MOST = 5000

export function savedPlaces(fabric: Fabric): Places {
  const saved = localStorage.getItem(KEY + fabric.topology.hash)
  if (saved === null) return []
  try {
    const places: [string, number, number][] = JSON.parse(saved)
    return places.flatMap(([name, x, y]) => {
      const node = fabric.node(name)
      return node === null || !Number.isFinite(x) || !Number.isFinite(y) ? [] : [[node, x, y] as Places[number]]
    })
  } catch {
    return [] // another version's
  }
}

export function savePlaces(fabric: Fabric, moved: Iterable<number>): void {
  const places = [...moved].slice(0, MOST).map((node) => [fabric.names[node], fabric.x[node], fabric.y[node]])
  if (places.length === 0) localStorage.removeItem(KEY + fabric.topology.hash)
  else localStorage.setItem(KEY + fabric.topology.hash, JSON.stringify(places))
}
