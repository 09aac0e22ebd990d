// Draws the map off the page's thread: at most one redraw is under way, the newest picture and view win.

import { Fabric } from '../fabric'
import type { Size, View } from './geometry'
import { rings } from './land'
import { matrixPlan } from './matrix'
import { Painter, type Picture } from './painter'
import type { DrawOrder, Drawn } from './protocol'
import { SvgBrush } from './svg'

const painter = new Painter()
let canvas: OffscreenCanvas | null = null
let picture: Picture | null = null
let fabric: Fabric | null = null
let place: { view: View; size: Size; ratio: number } | null = null
let waiting = false

function say(message: Drawn): void {
  self.postMessage(message)
}

function redraw(): void {
  waiting = false
  if (canvas === null || picture === null || place === null) return
  const { view, size, ratio } = place
  const [width, height] = [Math.round(size.width * ratio), Math.round(size.height * ratio)]
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width
    canvas.height = height
  }
  const ctx = canvas.getContext('2d', { alpha: false })
  if (ctx === null) throw new Error('no 2D context')
  painter.draw(ctx, size, view, picture, ratio)
  say({ kind: 'drawn', view })
}

function later(): void {
  if (waiting) return
  waiting = true
  setTimeout(redraw, 0)
}

async function loadLand(topology: { bounds: [number, number, number, number] }): Promise<void> {
  const atlas = await import('world-atlas/land-110m.json')
  const [x0, y0, x1, y1] = topology.bounds
  const reach = Math.max(x1 - x0, y1 - y0, 5)
  painter.setLand(rings(atlas.default, [x0 - reach, y0 - reach, x1 + reach, y1 + reach]))
  later()
}

self.onmessage = (event: MessageEvent<DrawOrder>) => {
  const order = event.data
  if (order.kind === 'canvas') canvas = order.canvas
  else if (order.kind === 'topology') {
    fabric = new Fabric(order.topology)
    painter.setFabric(fabric, order.matrix ? matrixPlan(fabric) : null)
    painter.setLand([])
    if (order.topology.layout === 'place') void loadLand(order.topology)
  } else if (order.kind === 'places') fabric?.place(order.places)
  else if (order.kind === 'picture') picture = order.picture
  else if (order.kind === 'view') place = { view: order.view, size: order.size, ratio: order.ratio }
  else if (order.kind === 'svg') {
    if (picture === null || place === null) return
    const brush = new SvgBrush()
    painter.draw(brush, place.size, place.view, picture, 1)
    say({ kind: 'svg', text: brush.document(place.size.width, place.size.height, 'Map') })
    return
  } else {
    redraw()
    void canvas?.convertToBlob({ type: 'image/png' }).then((blob) => say({ kind: 'png', blob }))
    return
  }
  later()
}
