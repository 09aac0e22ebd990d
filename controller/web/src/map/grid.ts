// An index of points and segments for picking: a grid of cells over the world.

import { nearSegment, type Box } from './geometry'

const CELLS = 96

export type Hit = { kind: 'node'; node: number } | { kind: 'pair'; pair: number; nearA: boolean }

export class Grid {
  readonly #nodes = new Map<number, number[]>()
  readonly #segments = new Map<number, number[]>()
  readonly #cell: number

  constructor(
    private readonly box: Box,
    private readonly x: ArrayLike<number>,
    private readonly y: ArrayLike<number>,
    private readonly pairs: readonly { a: number; b: number }[]
  ) {
    this.#cell = Math.max(box[2] - box[0], box[3] - box[1], 1e-9) / CELLS
    for (let i = 0; i < x.length; i++) put(this.#nodes, this.#key(x[i], y[i]), i)
    pairs.forEach((pair, i) => this.#putSegment(pair, i))
  }

  /** The nearest node within the radius, else the nearest segment, else null. All in world coordinates. */
  pick(px: number, py: number, radius: number, nodeRadius: number): Hit | null {
    const node = this.#nearestNode(px, py, nodeRadius)
    if (node !== null) return { kind: 'node', node }
    let best = radius
    let hit: Hit | null = null
    for (const i of this.#around(this.#segments, px, py, radius)) {
      const { a, b } = this.pairs[i]
      const near = nearSegment(px, py, this.x[a], this.y[a], this.x[b], this.y[b])
      if (near.distance <= best) {
        best = near.distance
        hit = { kind: 'pair', pair: i, nearA: near.nearA }
      }
    }
    return hit
  }

  #nearestNode(px: number, py: number, radius: number): number | null {
    let best = radius
    let nearest: number | null = null
    for (const i of this.#around(this.#nodes, px, py, radius)) {
      const distance = Math.hypot(px - this.x[i], py - this.y[i])
      if (distance <= best) {
        best = distance
        nearest = i
      }
    }
    return nearest
  }

  #column(x: number): number {
    return Math.floor((x - this.box[0]) / this.#cell)
  }

  #row(y: number): number {
    return Math.floor((y - this.box[1]) / this.#cell)
  }

  #key(x: number, y: number): number {
    return key(this.#column(x), this.#row(y))
  }

  #putSegment(pair: { a: number; b: number }, i: number): void {
    const [ax, ay, bx, by] = [this.x[pair.a], this.y[pair.a], this.x[pair.b], this.y[pair.b]]
    // Half a cell a step: no cell that it crosses is further than one from a step, and `#around` looks one further.
    const steps = Math.ceil((2 * Math.hypot(bx - ax, by - ay)) / this.#cell)
    let last = NaN
    for (let s = 0; s <= steps; s++) {
      const t = steps === 0 ? 0 : s / steps
      const cell = this.#key(ax + (bx - ax) * t, ay + (by - ay) * t)
      if (cell !== last) put(this.#segments, cell, i)
      last = cell
    }
  }

  *#around(cells: Map<number, number[]>, px: number, py: number, radius: number): Generator<number> {
    const reach = Math.min(CELLS, Math.ceil(radius / this.#cell) + 1)
    const column = this.#column(px)
    const row = this.#row(py)
    const seen = new Set<number>()
    for (let r = row - reach; r <= row + reach; r++)
      for (let c = column - reach; c <= column + reach; c++)
        for (const i of cells.get(key(c, r)) ?? [])
          if (!seen.has(i)) {
            seen.add(i)
            yield i
          }
  }
}

function key(column: number, row: number): number {
  return (column + 4096) * 65536 + row + 4096
}

function put(cells: Map<number, number[]>, cell: number, i: number): void {
  const held = cells.get(cell)
  if (held) held.push(i)
  else cells.set(cell, [i])
}
