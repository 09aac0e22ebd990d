// Draws a fabric into a 2D context. Everything of one colour and width is one stroke: thousands of lanes stay cheap.

import type { Fabric } from '../fabric'
import { conditionOf, DOWN, NOMINAL, shareOf, UNKNOWN } from '../stream/figures'
import { halfLane, laneWidth, toScreen, type Size, type View } from './geometry'
import { badness, colourTable, COLOURS, NO_FIGURE, palette, type Figure, type Theme } from './ramp'
import type { Brush } from './svg'
import { foldAt, folded, type MatrixPlan } from './matrix'

export interface Highlight {
  /** Nodes of a path that is left, drawn dotted. */
  old: number[]
  /** Nodes of a path that is taken, drawn bold. */
  new: number[]
}

/** Where a job's sums go: links that carry contributions, as pairs of nodes, and the switch where they end. */
export interface Tree {
  links: [number, number][]
  root: number | null
}

export interface Picture {
  planes: Uint8Array | null
  figure: Figure
  theme: Theme
  stale: boolean
  selectedLink: number | null
  selectedNode: number | null
  highlight: Highlight | null
  tree?: Tree | null
  uncertain: ReadonlySet<number>
  drained: ReadonlySet<number>
  labels: boolean
}

const WIDTHS = 11 // 1, 1.5, ... 6 px
const INK = { dark: '#e6edf3', light: '#1b2733' }
const MUTED = { dark: '#8b97a5', light: '#5b6774' }
const PAPER = { dark: '#0e141b', light: '#ffffff' }
const SEA = { dark: '#0b1016', light: '#edf2f6' }
const LAND = { dark: '#141c25', light: '#ffffff' }
const COAST = { dark: '#27333f', light: '#d3dbe2' }
const ACCENT = { dark: '#58b4ff', light: '#0b62c4' }
const NODE = { dark: '#c3cdd8', light: '#33414f' }
const LOSS_DOT = { dark: '#ff6b81', light: '#b00020' }
const DRAINED = { dark: '#c79bff', light: '#7b3fc4' }

export class Painter {
  readonly #tables = { utilisation: colourTable('utilisation'), delay: colourTable('delay'), loss: colourTable('loss') }
  #fabric: Fabric | null = null
  #matrix: MatrixPlan | null = null
  #land: Float32Array[] = []

  setFabric(fabric: Fabric, matrix: MatrixPlan | null): void {
    this.#fabric = fabric
    this.#matrix = matrix
  }

  setLand(land: Float32Array[]): void {
    this.#land = land
  }

  draw(ctx: Brush, size: Size, view: View, picture: Picture, ratio: number): void {
    const mode = picture.theme.dark ? 'dark' : 'light'
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0)
    ctx.lineCap = 'butt'
    ctx.lineJoin = 'round'
    ctx.setLineDash([])
    ctx.globalAlpha = 1
    ctx.fillStyle = this.#fabric?.topology.layout === 'place' && this.#matrix === null ? SEA[mode] : PAPER[mode]
    ctx.fillRect(0, 0, size.width, size.height)
    if (this.#fabric === null) return
    if (this.#matrix !== null) {
      this.#drawMatrix(ctx, size, view, picture, this.#matrix)
      return
    }
    if (this.#fabric.topology.layout === 'place') this.#drawLand(ctx, size, view, mode)
    this.#drawTree(ctx, size, view, picture)
    this.#drawAccess(ctx, size, view, mode)
    this.#drawLanes(ctx, size, view, picture)
    this.#drawHighlight(ctx, size, view, picture)
    this.#drawNodes(ctx, size, view, picture)
  }

  #drawLand(ctx: Brush, size: Size, view: View, mode: 'dark' | 'light'): void {
    ctx.fillStyle = LAND[mode]
    ctx.strokeStyle = COAST[mode]
    ctx.lineWidth = 1
    ctx.beginPath()
    const stretch = (this.#fabric as Fabric).stretch
    for (const ring of this.#land) {
      let last: [number, number] = [NaN, NaN]
      for (let i = 0; i < ring.length; i += 2) {
        const point = toScreen(view, size, ring[i], -ring[i + 1] * stretch)
        // Points closer than a pixel are not seen.
        if (i > 0 && Math.abs(point[0] - last[0]) < 1 && Math.abs(point[1] - last[1]) < 1) continue
        if (i === 0) ctx.moveTo(point[0], point[1])
        else ctx.lineTo(point[0], point[1])
        last = point
      }
      ctx.closePath()
    }
    ctx.fill('evenodd')
    ctx.stroke()
  }

  /** Hosts are noise until few are in sight. */
  #showsHosts(size: Size, view: View): boolean {
    const fabric = this.#fabric as Fabric
    const hosts = fabric.nodes - fabric.switches
    const [x0, y0, x1, y1] = fabric.bounds
    const share = Math.min(1, (size.width / view.scale / Math.max(x1 - x0, 1e-9)) * (size.height / view.scale / Math.max(y1 - y0, 1e-9)))
    return hosts > 0 && hosts * share <= 150
  }

  #drawAccess(ctx: Brush, size: Size, view: View, mode: 'dark' | 'light'): void {
    const fabric = this.#fabric as Fabric
    if (!this.#showsHosts(size, view)) return
    ctx.strokeStyle = COAST[mode]
    ctx.lineWidth = 1
    ctx.beginPath()
    for (const cable of fabric.access) {
      ctx.moveTo(...toScreen(view, size, fabric.x[cable.a], fabric.y[cable.a]))
      ctx.lineTo(...toScreen(view, size, fabric.x[cable.b], fabric.y[cable.b]))
    }
    ctx.stroke()
    ctx.fillStyle = MUTED[mode]
    for (let i = fabric.switches; i < fabric.nodes; i++) {
      const [x, y] = toScreen(view, size, fabric.x[i], fabric.y[i])
      ctx.fillRect(x - 2.5, y - 2.5, 5, 5)
    }
  }

  /** A band below the lanes, whose colours stay visible on it. */
  #drawTree(ctx: Brush, size: Size, view: View, picture: Picture): void {
    if (picture.tree == null) return
    const fabric = this.#fabric as Fabric
    const mode = picture.theme.dark ? 'dark' : 'light'
    const at = (node: number) => toScreen(view, size, fabric.x[node], fabric.y[node])
    ctx.globalAlpha = picture.stale ? 0.2 : 0.4
    ctx.lineCap = 'round'
    stroke(ctx, picture.tree.links.flatMap(([from, to]) => [...at(from), ...at(to)]), ACCENT[mode], 16)
    ctx.lineCap = 'butt'
    ctx.globalAlpha = 1
    if (picture.tree.root === null) return
    const [x, y] = at(picture.tree.root)
    ctx.fillStyle = ACCENT[mode]
    ctx.beginPath()
    ctx.arc(x, y, 11, 0, 2 * Math.PI)
    ctx.fill()
  }

  #drawLanes(ctx: Brush, size: Size, view: View, picture: Picture): void {
    const fabric = this.#fabric as Fabric
    const mode = picture.theme.dark ? 'dark' : 'light'
    const buckets: (number[] | undefined)[] = []
    const nominal: number[] = []
    const down: number[] = []
    const drained: number[] = []
    const dots: number[] = []
    const counts: { x: number; y: number; n: number }[] = []
    const selected: number[] = []
    const planes = picture.planes
    const table = this.#tables[picture.figure]
    const plane = { utilisation: 0, delay: 1, loss: 2 }[picture.figure] * fabric.links

    // A carpet of lanes hides the few that matter: many on little room are thin, and the worst are drawn last.
    const [x0, y0, x1, y1] = fabric.bounds
    const room = Math.min(size.width * size.height, (Math.max(x1 - x0, y1 - y0) * view.scale) ** 2)
    const thin = Math.min(1, Math.max(0.12, Math.sqrt(room / fabric.pairs.length) / 40))

    const lane = (link: number, shift: number, ax: number, ay: number, bx: number, by: number) => {
      const used = planes === null ? NOMINAL : planes[link]
      const share = shareOf(used)
      const width = share === null ? 1 : laneWidth(share * fabric.cables[link >> 1].rate_bps, fabric.mostBps)
      const px = width * thin
      const line = halfLane(ax, ay, bx, by, shift + px / 2 + 0.6 * thin)
      if (picture.selectedLink === link) selected.push(...line, px)
      if (used === DOWN) down.push(...line)
      else if (picture.drained.has(link)) drained.push(...line)
      else if (used === NOMINAL || used === UNKNOWN || planes === null) nominal.push(...line)
      else {
        const uncertain = picture.figure === 'delay' && picture.uncertain.has(link)
        const colour = uncertain ? NO_FIGURE : table[planes[plane + link]]
        const bucket = colour * WIDTHS + Math.round((width - 1) * 2)
        ;(buckets[bucket] ??= []).push(...line)
        const lost = planes[2 * fabric.links + link]
        if (lost > 0 && lost < 255) dots.push((line[0] + line[2]) / 2, (line[1] + line[3]) / 2, lost)
      }
    }

    for (const pair of fabric.pairs) {
      const [ax, ay] = toScreen(view, size, fabric.x[pair.a], fabric.y[pair.a])
      const [bx, by] = toScreen(view, size, fabric.x[pair.b], fabric.y[pair.b])
      if (Math.max(ax, bx) < -20 || Math.min(ax, bx) > size.width + 20 || Math.max(ay, by) < -20 || Math.min(ay, by) > size.height + 20) continue
      const forward = (cable: number) => (fabric.cables[cable].a === pair.a ? 2 * cable : 2 * cable + 1)
      const count = pair.cables.length
      if (count > 1 && (count > 6 || Math.hypot(bx - ax, by - ay) < 40 * count)) {
        const worst = (direction: number) =>
          pair.cables
            .map((cable) => forward(cable) ^ direction)
            .reduce((a, b) => (planes !== null && badness(planes, fabric.links, b, picture.figure) > badness(planes, fabric.links, a, picture.figure) ? b : a))
        lane(worst(0), 0, ax, ay, bx, by)
        lane(worst(1), 0, bx, by, ax, ay)
        counts.push({ x: (ax + bx) / 2, y: (ay + by) / 2, n: count })
        continue
      }
      pair.cables.forEach((cable, i) => {
        const spread = (i - (count - 1) / 2) * 15
        // Shifted to the right of a to b: for the way back that is to the left.
        lane(forward(cable), spread, ax, ay, bx, by)
        lane(forward(cable) ^ 1, -spread, bx, by, ax, ay)
      })
    }

    const colours = palette(picture.theme)
    ctx.globalAlpha = picture.stale ? 0.35 : 1
    stroke(ctx, nominal, colours[NO_FIGURE], Math.max(0.4, thin))
    for (let bucket = 0; bucket < COLOURS * WIDTHS; bucket++) {
      const lines = buckets[bucket]
      if (!lines) continue
      const colour = Math.floor(bucket / WIDTHS)
      stroke(ctx, lines, picture.stale ? colours[NO_FIGURE] : colours[colour], thin * (1 + (bucket % WIDTHS) / 2))
    }
    ctx.setLineDash([2, 4])
    stroke(ctx, drained, DRAINED[mode], 3)
    ctx.setLineDash([6, 4])
    stroke(ctx, down, LOSS_DOT[mode], 1.5)
    ctx.setLineDash([])
    cross(ctx, down, LOSS_DOT[mode])
    ctx.fillStyle = LOSS_DOT[mode]
    for (let i = 0; i < dots.length; i += 3) {
      ctx.beginPath()
      ctx.arc(dots[i], dots[i + 1], 1.5 + 2.5 * (dots[i + 2] / 254) ** 2, 0, 2 * Math.PI)
      ctx.fill()
    }
    ctx.globalAlpha = 1
    for (let i = 0; i < selected.length; i += 5) {
      const line = selected.slice(i, i + 4)
      ctx.globalAlpha = 0.45
      ctx.lineCap = 'round'
      stroke(ctx, line, ACCENT[mode], selected[i + 4] + 8)
      ctx.lineCap = 'butt'
      ctx.globalAlpha = 1
    }
    if (counts.length <= 400) this.#drawCounts(ctx, counts, mode)
  }

  #drawCounts(ctx: Brush, counts: { x: number; y: number; n: number }[], mode: 'dark' | 'light'): void {
    ctx.font = '600 10px system-ui, sans-serif'
    ctx.textAlign = 'center'
    ctx.textBaseline = 'middle'
    for (const { x, y, n } of counts) {
      ctx.fillStyle = PAPER[mode]
      ctx.beginPath()
      ctx.arc(x, y, 8, 0, 2 * Math.PI)
      ctx.fill()
      ctx.fillStyle = INK[mode]
      ctx.fillText(String(n), x, y + 0.5)
    }
  }

  #drawHighlight(ctx: Brush, size: Size, view: View, picture: Picture): void {
    if (picture.highlight === null) return
    const fabric = this.#fabric as Fabric
    const mode = picture.theme.dark ? 'dark' : 'light'
    const trace = (nodes: number[]) => {
      ctx.beginPath()
      nodes.forEach((node, i) => {
        const point = toScreen(view, size, fabric.x[node], fabric.y[node])
        if (i === 0) ctx.moveTo(...point)
        else ctx.lineTo(...point)
      })
      ctx.stroke()
    }
    ctx.lineCap = 'round'
    ctx.strokeStyle = MUTED[mode]
    ctx.lineWidth = 4
    ctx.setLineDash([0.1, 9])
    trace(picture.highlight.old)
    ctx.setLineDash([])
    ctx.strokeStyle = PAPER[mode]
    ctx.lineWidth = 9
    ctx.globalAlpha = 0.7
    trace(picture.highlight.new)
    ctx.globalAlpha = 1
    ctx.strokeStyle = ACCENT[mode]
    ctx.lineWidth = 5
    trace(picture.highlight.new)
    ctx.lineCap = 'butt'
  }

  #drawNodes(ctx: Brush, size: Size, view: View, picture: Picture): void {
    const fabric = this.#fabric as Fabric
    const mode = picture.theme.dark ? 'dark' : 'light'
    const radius = fabric.switches > 300 ? 2 : 4.5
    const visible: [number, number, number][] = []
    ctx.fillStyle = NODE[mode]
    ctx.beginPath()
    for (let i = 0; i < fabric.switches; i++) {
      const [x, y] = toScreen(view, size, fabric.x[i], fabric.y[i])
      if (x < -20 || x > size.width + 20 || y < -20 || y > size.height + 20) continue
      visible.push([i, x, y])
      ctx.moveTo(x + radius, y)
      ctx.arc(x, y, radius, 0, 2 * Math.PI)
    }
    ctx.fill()
    if (picture.selectedNode !== null) {
      const [x, y] = toScreen(view, size, fabric.x[picture.selectedNode], fabric.y[picture.selectedNode])
      ctx.strokeStyle = ACCENT[mode]
      ctx.lineWidth = 3
      ctx.beginPath()
      ctx.arc(x, y, radius + 4, 0, 2 * Math.PI)
      ctx.stroke()
    }
    if (this.#showsHosts(size, view) && fabric.nodes <= 200)
      for (let i = fabric.switches; i < fabric.nodes; i++) visible.push([i, ...toScreen(view, size, fabric.x[i], fabric.y[i])])
    if (picture.labels) this.#drawLabels(ctx, visible, radius, picture, mode)
  }

  /** Labels only where they cover no other label; switches first. */
  #drawLabels(ctx: Brush, nodes: [number, number, number][], radius: number, picture: Picture, mode: 'dark' | 'light'): void {
    const fabric = this.#fabric as Fabric
    const boxes: [number, number, number, number][] = nodes
      .filter(([node]) => node < fabric.switches)
      .map(([, x, y]) => [x - radius, y - radius, x + radius, y + radius])
    if (nodes.length > 600) return
    ctx.font = '12px system-ui, sans-serif'
    ctx.textAlign = 'left'
    ctx.textBaseline = 'middle'
    for (const [node, x, y] of nodes) {
      const isHost = node >= fabric.switches
      const name = short(fabric.names[node])
      const width = ctx.measureText(name).width
      const gap = radius + 4
      const places: [number, number][] = [
        [x + gap, y],
        [x - gap - width, y],
        [x - width / 2, y - gap - 6],
        [x - width / 2, y + gap + 7]
      ]
      const free = places.find(([left, middle]) =>
        boxes.every(([x0, y0, x1, y1]) => left > x1 || left + width < x0 || middle - 7 > y1 || middle + 7 < y0)
      )
      if (free === undefined) continue
      boxes.push([free[0], free[1] - 7, free[0] + width, free[1] + 7])
      ctx.lineWidth = 3.5
      ctx.strokeStyle = PAPER[mode]
      ctx.strokeText(name, ...free)
      ctx.fillStyle = isHost ? MUTED[mode] : INK[mode]
      if (picture.selectedNode === node) ctx.fillStyle = ACCENT[mode]
      ctx.fillText(name, ...free)
    }
  }

  #drawMatrix(ctx: Brush, size: Size, view: View, picture: Picture, plan: MatrixPlan): void {
    const fabric = this.#fabric as Fabric
    const mode = picture.theme.dark ? 'dark' : 'light'
    const colours = palette(picture.theme)
    const planes = picture.planes
    const table = this.#tables[picture.figure]
    const plane = { utilisation: 0, delay: 1, loss: 2 }[picture.figure] * fabric.links
    const triangles: (number[] | undefined)[] = []
    const crosses: number[] = []
    const fold = foldAt(plan, view.scale)
    const [wide, high] = [view.scale * plan.wide * fold.columns, view.scale * fold.rows]
    const inset = Math.min(wide, high) > 6 ? 1 : 0
    const cross = Math.max(2, Math.min(wide, high) * 0.2)
    const worst = (links: number[]) =>
      links.reduce((a, b) => (planes !== null && badness(planes, fabric.links, b, picture.figure) > badness(planes, fabric.links, a, picture.figure) ? b : a))
    const put = (link: number, points: number[], x: number, y: number) => {
      const used = planes === null ? NOMINAL : planes[link]
      if (used === DOWN) crosses.push(x, y)
      const colour = planes === null || conditionOf(used) !== 'up' ? NO_FIGURE : table[planes[plane + link]]
      ;(triangles[colour] ??= []).push(...points)
    }
    ctx.globalAlpha = picture.stale ? 0.35 : 1
    for (const { row, column, up, down } of folded(plan, fold)) {
      const [x, y] = toScreen(view, size, column * plan.wide, row)
      if (x + wide < 0 || y + high < 0 || x > size.width || y > size.height) continue
      const [x1, y1] = [x + wide - inset, y + high - inset]
      put(worst(up), [x, y, x1, y, x, y1], x + wide * 0.3, y + high * 0.3)
      put(worst(down), [x1, y, x1, y1, x, y1], x + wide * 0.7, y + high * 0.7)
    }
    triangles.forEach((points, colour) => {
      ctx.fillStyle = picture.stale ? colours[NO_FIGURE] : colours[colour]
      ctx.beginPath()
      for (let i = 0; i < (points as number[]).length; i += 6) {
        const p = points as number[]
        ctx.moveTo(p[i], p[i + 1])
        ctx.lineTo(p[i + 2], p[i + 3])
        ctx.lineTo(p[i + 4], p[i + 5])
        ctx.closePath()
      }
      ctx.fill()
    })
    ctx.globalAlpha = 1
    ctx.strokeStyle = LOSS_DOT[mode]
    ctx.lineWidth = 1.5
    ctx.beginPath()
    for (let i = 0; i < crosses.length; i += 2) {
      ctx.moveTo(crosses[i] - cross, crosses[i + 1] - cross)
      ctx.lineTo(crosses[i] + cross, crosses[i + 1] + cross)
      ctx.moveTo(crosses[i] - cross, crosses[i + 1] + cross)
      ctx.lineTo(crosses[i] + cross, crosses[i + 1] - cross)
    }
    ctx.stroke()
    this.#drawMatrixNames(ctx, size, view, picture, plan)
  }

  #drawMatrixNames(ctx: Brush, size: Size, view: View, picture: Picture, plan: MatrixPlan): void {
    const fabric = this.#fabric as Fabric
    const mode = picture.theme.dark ? 'dark' : 'light'
    const [wide, high] = [view.scale * plan.wide, view.scale]
    const fold = foldAt(plan, view.scale)
    const everyRow = fold.rows * Math.max(1, Math.ceil(13 / (high * fold.rows)))
    const everyColumn = fold.columns * Math.max(1, Math.ceil(13 / (wide * fold.columns)))
    ctx.font = '11px system-ui, sans-serif'
    ctx.textBaseline = 'middle'
    const ink = (node: number) => {
      ctx.fillStyle = picture.selectedNode === node ? ACCENT[mode] : MUTED[mode]
    }
    ctx.textAlign = 'right'
    plan.rows.forEach((node, row) => {
      if (row % everyRow !== 0) return
      const [x, y] = toScreen(view, size, 0, row + fold.rows / 2)
      ink(node)
      ctx.fillText(short(fabric.names[node], 16), x - 5, y)
    })
    ctx.textAlign = 'left'
    plan.columns.forEach((node, column) => {
      if (column % everyColumn !== 0) return
      const [x, y] = toScreen(view, size, (column + fold.columns / 2) * plan.wide, 0)
      ctx.save()
      ctx.translate(x, y - 5)
      ctx.rotate(-Math.PI / 2)
      ink(node)
      ctx.fillText(short(fabric.names[node], 16), 0, 0)
      ctx.restore()
    })
    if (fold.rows * fold.columns > 1) {
      const [x, y] = toScreen(view, size, 0, plan.rows.length)
      ctx.fillStyle = MUTED[mode]
      ctx.fillText(`A cell is the worst of ${fold.rows} × ${fold.columns} switches; zoom in to unfold.`, x, y + 14)
    }
    const link = picture.selectedLink
    if (link === null) return
    const chosen = plan.cells.find(({ up, down }) => up.includes(link) || down.includes(link))
    if (chosen === undefined) return
    const [row, column] = [chosen.row - (chosen.row % fold.rows), chosen.column - (chosen.column % fold.columns)]
    const [x, y] = toScreen(view, size, column * plan.wide, row)
    ctx.strokeStyle = ACCENT[mode]
    ctx.lineWidth = 2.5
    ctx.strokeRect(x - 1.5, y - 1.5, wide * fold.columns + 2, high * fold.rows + 2)
  }
}

function stroke(ctx: Brush, lines: number[], colour: string, width: number): void {
  if (lines.length === 0) return
  ctx.strokeStyle = colour
  ctx.lineWidth = width
  ctx.beginPath()
  for (let i = 0; i < lines.length; i += 4) {
    ctx.moveTo(lines[i], lines[i + 1])
    ctx.lineTo(lines[i + 2], lines[i + 3])
  }
  ctx.stroke()
}

function cross(ctx: Brush, lines: number[], colour: string): void {
  ctx.strokeStyle = colour
  ctx.lineWidth = 2
  ctx.beginPath()
  for (let i = 0; i < lines.length; i += 4) {
    const x = (lines[i] + lines[i + 2]) / 2
    const y = (lines[i + 1] + lines[i + 3]) / 2
    ctx.moveTo(x - 4, y - 4)
    ctx.lineTo(x + 4, y + 4)
    ctx.moveTo(x - 4, y + 4)
    ctx.lineTo(x + 4, y - 4)
  }
  ctx.stroke()
}

/** A long name keeps its start and its end, which tell names of one scheme apart. */
export function short(name: string, most = 24): string {
  return name.length <= most ? name : `${name.slice(0, most - 9)}…${name.slice(-8)}`
}
