// The pod matrix of a layered fabric: a row a lower switch, a column an upper one, two triangles a cell.

import type { Fabric } from '../fabric'

export interface MatrixCell {
  row: number
  column: number
  /** Directed links of the cell: from the lower switch, and back. */
  up: number[]
  down: number[]
}

export interface MatrixPlan {
  /** Units of x a column; a row is one unit of y. */
  wide: number
  rows: number[]
  columns: number[]
  cells: MatrixCell[]
}

/** Rows and columns that one drawn cell folds: it is never below 4 px. */
export function foldAt(plan: MatrixPlan, scale: number): { rows: number; columns: number } {
  return { rows: Math.max(1, Math.ceil(4 / scale)), columns: Math.max(1, Math.ceil(4 / (scale * plan.wide))) }
}

/** Cells of a fold: the links of both directions of all that it covers. */
export function folded(plan: MatrixPlan, fold: { rows: number; columns: number }): MatrixCell[] {
  if (fold.rows === 1 && fold.columns === 1) return plan.cells
  const cells = new Map<number, MatrixCell>()
  for (const { row, column, up, down } of plan.cells) {
    const [r, c] = [Math.floor(row / fold.rows) * fold.rows, Math.floor(column / fold.columns) * fold.columns]
    const cell = cells.get(r * 65536 + c)
    if (cell) {
      cell.up.push(...up)
      cell.down.push(...down)
    } else cells.set(r * 65536 + c, { row: r, column: c, up: [...up], down: [...down] })
  }
  return [...cells.values()]
}

/** Above this many switches the graph of a Clos is a carpet. */
export const MATRIX_FROM = 300

/** Returns null if the layout has no layers, or cables join switches of one layer. */
export function matrixPlan(fabric: Fabric): MatrixPlan | null {
  const layer = fabric.topology.switches.map((node) => node.layer)
  if (fabric.topology.layout !== 'layers' || layer.some((value) => value === null)) return null
  const lower: { low: number; high: number; cables: number[] }[] = []
  for (const { a, b, cables } of fabric.pairs) {
    const [la, lb] = [layer[a] as number, layer[b] as number]
    if (la === lb) return null
    lower.push(la < lb ? { low: a, high: b, cables } : { low: b, high: a, cables })
  }
  const ordered = (nodes: Set<number>) => [...nodes].sort((a, b) => (layer[a] as number) - (layer[b] as number) || a - b)
  const rows = ordered(new Set(lower.map(({ low }) => low)))
  const columns = ordered(new Set(lower.map(({ high }) => high)))
  const rowOf = new Map(rows.map((node, i) => [node, i]))
  const columnOf = new Map(columns.map((node, i) => [node, i]))
  const cells = lower.map(({ low, high, cables }) => {
    const up = cables.map((cable) => (fabric.cables[cable].a === low ? 2 * cable : 2 * cable + 1))
    return { row: rowOf.get(low) as number, column: columnOf.get(high) as number, up, down: up.map((link) => link ^ 1) }
  })
  // A tall matrix of few columns gets wide cells.
  const wide = Math.min(12, Math.max(1, (1.3 * rows.length) / Math.max(1, columns.length)))
  return { wide, rows, columns, cells }
}
