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
  rows: number[]
  columns: number[]
  cells: MatrixCell[]
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
  return { rows, columns, cells }
}
