import { describe, expect, it } from 'vitest'
import { Fabric } from '../src/fabric'
import { fit, halfLane, laneWidth, moved, toScreen, toWorld, zoomAt } from '../src/map/geometry'
import { Grid } from '../src/map/grid'
import { foldAt, folded, matrixPlan } from '../src/map/matrix'
import { badness, colourTable, FULL, HIGH, NO_FIGURE, palette } from '../src/map/ramp'
import type { Topology } from '../src/stream/types'

const size = { width: 800, height: 600 }

describe('a half-lane', () => {
  it('runs from its tail to the middle, on its right-hand side', () => {
    // To the east: right is south, which is down.
    expect(halfLane(0, 0, 10, 0, 2)).toEqual([0, 2, 5, 2])
    // To the west: right is north.
    expect(halfLane(10, 0, 0, 0, 2)).toEqual([10, -2, 5, -2])
  })

  it('is 1 to 6 px wide, by the square root of the rate', () => {
    expect([laneWidth(0, 100), laneWidth(25, 100), laneWidth(100, 100), laneWidth(400, 100)]).toEqual([1, 3.5, 6, 6])
  })
})

describe('a view', () => {
  it('that fits shows the whole box', () => {
    const view = fit([-10, 20, 30, 40], size, 50)
    const [x0, y0] = toScreen(view, size, -10, 20)
    const [x1, y1] = toScreen(view, size, 30, 40)
    expect(Math.min(x0, y0)).toBeGreaterThanOrEqual(50 - 1e-6)
    expect(x1).toBeLessThanOrEqual(750 + 1e-6)
    expect(y1).toBeLessThanOrEqual(550 + 1e-6)
  })

  it('of one point is not infinite', () => {
    expect(fit([3, 3, 3, 3], size, 50).scale).toBe(1)
  })

  it('zooms about the pointer', () => {
    const view = { x: 5, y: 6, scale: 10 }
    const before = toWorld(view, size, 100, 200)
    const after = toWorld(zoomAt(view, size, 100, 200, 3), size, 100, 200)
    expect(after[0]).toBeCloseTo(before[0])
    expect(after[1]).toBeCloseTo(before[1])
  })

  it('moves the picture to where a redraw would put it', () => {
    const drawn = { x: 5, y: 6, scale: 10 }
    const view = { x: 7, y: 3, scale: 25 }
    const { dx, dy, factor } = moved(drawn, view)
    const [x, y] = toScreen(drawn, size, 9, 9)
    const shown = [(x - 400) * factor + 400 + dx, (y - 300) * factor + 300 + dy]
    const [wantedX, wantedY] = toScreen(view, size, 9, 9)
    expect(shown[0]).toBeCloseTo(wantedX)
    expect(shown[1]).toBeCloseTo(wantedY)
  })
})

describe('the grid', () => {
  // Deterministic points: a linear congruential generator.
  let seed = 7
  const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647
  const x = Float64Array.from({ length: 60 }, () => random() * 100)
  const y = Float64Array.from({ length: 60 }, () => random() * 40)
  const pairs = Array.from({ length: 150 }, () => ({ a: Math.floor(random() * 60), b: Math.floor(random() * 60) })).filter(({ a, b }) => a !== b)
  const grid = new Grid([0, 0, 100, 40], x, y, pairs)

  function nearest(px: number, py: number): number {
    return Math.min(
      ...pairs.map(({ a, b }) => {
        const [dx, dy] = [x[b] - x[a], y[b] - y[a]]
        const t = Math.min(1, Math.max(0, ((px - x[a]) * dx + (py - y[a]) * dy) / (dx * dx + dy * dy)))
        return Math.hypot(px - x[a] - t * dx, py - y[a] - t * dy)
      })
    )
  }

  it('picks what a search of all segments finds', () => {
    for (let i = 0; i < 300; i++) {
      const [px, py] = [random() * 110 - 5, random() * 50 - 5]
      const hit = grid.pick(px, py, 1.5, 0)
      const distance = nearest(px, py)
      expect(hit === null).toBe(distance > 1.5)
    }
  })

  it('prefers a node, and tells the halves of a cable apart', () => {
    const line = new Grid([0, 0, 10, 10], [0, 10], [5, 5], [{ a: 0, b: 1 }])
    expect(line.pick(0.2, 5, 1, 1)).toEqual({ kind: 'node', node: 0 })
    expect(line.pick(3, 5.2, 1, 1)).toEqual({ kind: 'pair', pair: 0, nearA: true })
    expect(line.pick(7, 5.2, 1, 1)).toEqual({ kind: 'pair', pair: 0, nearA: false })
    expect(line.pick(5, 9, 1, 1)).toBeNull()
  })
})

const clos: Topology = {
  name: 'clos', hash: 'h', layout: 'layers', bounds: [0, 0, 2, 1], hosts: [],
  switches: [
    { name: 'spine', x: 1, y: 0, layer: 1, place: null },
    { name: 'leaf1', x: 0, y: 1, layer: 0, place: null },
    { name: 'leaf2', x: 2, y: 1, layer: 0, place: null }
  ],
  cables: [
    { a: 0, b: 1, rate_bps: 1, delay_ns: 1 },
    { a: 2, b: 0, rate_bps: 1, delay_ns: 1 },
    { a: 2, b: 0, rate_bps: 1, delay_ns: 1 }
  ]
}

describe('the matrix', () => {
  it('has leaves as rows, spines as columns, parallel cables in one cell', () => {
    const plan = matrixPlan(new Fabric(clos))
    expect(plan).toMatchObject({ rows: [1, 2], columns: [0] })
    expect(plan?.cells).toEqual([
      { row: 0, column: 0, up: [1], down: [0] },
      { row: 1, column: 0, up: [2, 4], down: [3, 5] }
    ])
  })

  it('folds until a cell has 4 px, and loses no link', () => {
    const plan = matrixPlan(new Fabric(clos))!
    expect(foldAt(plan, 1)).toEqual({ rows: 4, columns: Math.ceil(4 / plan.wide) })
    const cells = folded(plan, { rows: 2, columns: 1 })
    expect(cells).toEqual([{ row: 0, column: 0, up: [1, 2, 4], down: [0, 3, 5] }])
    expect(plan.cells.map((cell) => cell.up)).toEqual([[1], [2, 4]])
  })

  it('is none of a fabric without layers', () => {
    expect(matrixPlan(new Fabric({ ...clos, layout: 'place' }))).toBeNull()
    const level = clos.switches.map((node) => ({ ...node, layer: 0 }))
    expect(matrixPlan(new Fabric({ ...clos, switches: level }))).toBeNull()
  })
})

describe('colours', () => {
  const lightness = (colour: string) => {
    const [r, g, b] = colour.startsWith('#') ? [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16)) : (colour.match(/\d+/g) as string[]).map(Number)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }

  it('step at 80 and at 95 %', () => {
    const table = colourTable('utilisation')
    expect([table[199], table[200], table[237], table[238], table[250]]).toEqual([HIGH - 1, HIGH, HIGH, FULL, FULL])
    expect([table[251], table[254], table[255]]).toEqual([NO_FIGURE, NO_FIGURE, NO_FIGURE])
  })

  it.each([true, false])('change their lightness all the way (dark: %s)', (dark) => {
    const lights = palette({ dark }).slice(0, HIGH).map(lightness)
    for (let i = 1; i < lights.length; i++) expect(dark ? lights[i] > lights[i - 1] : lights[i] < lights[i - 1]).toBe(true)
    const steps = palette({ dark }).slice(HIGH, FULL + 1).map(lightness)
    expect(Math.abs(steps[0] - steps[1])).toBeGreaterThan(25)
  })

  it('of a bundle are those of the worst: down before busy before unknown', () => {
    const planes = Uint8Array.from([254, 10, 255, 0, 0, 0, 0, 0, 0])
    expect([0, 1, 2].map((link) => badness(planes, 3, link, 'utilisation'))).toEqual([1000, 10, -1])
  })
})
