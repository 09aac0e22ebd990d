// Where things are: in world coordinates (y grows downward), and through a view on the screen.

export interface View {
  /** The world's point in the middle of the screen. */
  x: number
  y: number
  /** Pixels a unit of the world. */
  scale: number
}

export interface Size {
  width: number
  height: number
}

export type Box = [number, number, number, number]

/** The view that shows all of a box, with a border in pixels. */
export function fit(box: Box, size: Size, border: number): View {
  const [x0, y0, x1, y1] = box
  const width = Math.max(x1 - x0, 1e-9)
  const height = Math.max(y1 - y0, 1e-9)
  const inner = { width: Math.max(size.width - 2 * border, 40), height: Math.max(size.height - 2 * border, 40) }
  let scale = Math.min(inner.width / width, inner.height / height)
  if (width <= 1e-9 && height <= 1e-9) scale = 1
  return { x: (x0 + x1) / 2, y: (y0 + y1) / 2, scale }
}

export function toScreen(view: View, size: Size, x: number, y: number): [number, number] {
  return [(x - view.x) * view.scale + size.width / 2, (y - view.y) * view.scale + size.height / 2]
}

export function toWorld(view: View, size: Size, x: number, y: number): [number, number] {
  return [(x - size.width / 2) / view.scale + view.x, (y - size.height / 2) / view.scale + view.y]
}

/** The view after scaling by a factor, with the world's point under (x, y) kept there. */
export function zoomAt(view: View, size: Size, x: number, y: number, factor: number): View {
  const [worldX, worldY] = toWorld(view, size, x, y)
  const scale = view.scale * factor
  return { x: worldX - (x - size.width / 2) / scale, y: worldY - (y - size.height / 2) / scale, scale }
}

/** The transform that moves a picture drawn with `drawn` to where `view` shows it: shift, then factor about the middle. */
export function moved(drawn: View, view: View): { dx: number; dy: number; factor: number } {
  return {
    dx: (drawn.x - view.x) * view.scale,
    dy: (drawn.y - view.y) * view.scale,
    factor: view.scale / drawn.scale
  }
}

/** A line of a half-lane: from the tail to the middle, shifted to the right of its direction by `offset`. */
export function halfLane(tx: number, ty: number, hx: number, hy: number, offset: number): [number, number, number, number] {
  const dx = hx - tx
  const dy = hy - ty
  const length = Math.hypot(dx, dy) || 1
  const ox = (-dy / length) * offset
  const oy = (dx / length) * offset
  return [tx + ox, ty + oy, (tx + hx) / 2 + ox, (ty + hy) / 2 + oy]
}

/** Pixels for a rate, by square root: 1 at nothing to 6 at the fabric's fastest link in full use. */
export function laneWidth(rateBps: number, mostBps: number): number {
  return 1 + 5 * Math.sqrt(Math.min(1, Math.max(0, rateBps / mostBps)))
}

/** The end, of a segment, whose half holds the point, and how far the point is from the segment. */
export function nearSegment(
  px: number,
  py: number,
  ax: number,
  ay: number,
  bx: number,
  by: number
): { distance: number; nearA: boolean } {
  const dx = bx - ax
  const dy = by - ay
  const square = dx * dx + dy * dy
  const t = square === 0 ? 0 : Math.min(1, Math.max(0, ((px - ax) * dx + (py - ay) * dy) / square))
  return { distance: Math.hypot(px - ax - t * dx, py - ay - t * dy), nearA: t <= 0.5 }
}
