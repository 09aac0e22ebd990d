import { describe, expect, it } from 'vitest'
import { Fabric } from '../src/fabric'
import { Painter, type Picture } from '../src/map/painter'
import { SvgBrush } from '../src/map/svg'
import type { Topology } from '../src/stream/types'

const topology: Topology = {
  name: 'two', hash: 'h', layout: 'lengths', bounds: [0, 0, 100, 0], hosts: [],
  switches: [
    { name: '<b>&"a', x: 0, y: 0, layer: null, place: null },
    { name: 'z', x: 100, y: 0, layer: null, place: null }
  ],
  cables: [{ a: 0, b: 1, rate_bps: 100, delay_ns: 1 }]
}
const picture: Picture = {
  planes: null, figure: 'utilisation', theme: { dark: false }, stale: false, selectedLink: null, selectedNode: null, highlight: null,
  uncertain: new Set(), drained: new Set(), labels: true
}

function draw(change: Partial<Picture>, cables = topology.cables): string {
  const painter = new Painter()
  painter.setFabric(new Fabric({ ...topology, cables }), null)
  const brush = new SvgBrush()
  painter.draw(brush, { width: 400, height: 200 }, { x: 50, y: 0, scale: 2 }, { ...picture, ...change }, 1)
  return brush.document(400, 200, 'two')
}

const planes = (...bytes: number[]) => Uint8Array.from(bytes)

describe('the picture', () => {
  it('has a lane each way, each from its tail to the middle, on its right', () => {
    const svg = draw({ planes: planes(250, 0, 0, 0, 0, 0) })
    // Full use is 6 px wide, none 1 px: shifted by half of it and 0.6 px. The tails are at x = 100 and 300.
    expect(svg).toContain('d="M100 103.6L200 103.6" fill="none" stroke="#8c0f24" stroke-width="6"')
    expect(svg).toMatch(/d="M300 98.9L200 98.9" fill="none" stroke="rgb\(179,168,112\)" stroke-width="1"/)
  })

  it('shows a link that is down dashed, with a cross, and one without telemetry grey', () => {
    const svg = draw({ planes: planes(254, 255, 255, 255, 255, 255) })
    expect(svg).toMatch(/d="M100 101.1L200 101.1"[^>]*stroke-dasharray="6 4"/)
    expect(svg).toContain('M146 97.1L154 105.1')
    expect(svg).toMatch(/d="M300 98.9L200 98.9"[^>]*stroke="#b9c0c9"/)
  })

  it('folds parallel cables, in the colour of the worst, with their count', () => {
    const seven = Array.from({ length: 7 }, () => topology.cables[0])
    const bytes = new Uint8Array(42)
    bytes[6] = 250
    const svg = draw({ planes: bytes }, seven)
    expect(svg.match(/stroke="#8c0f24"/g)).toHaveLength(1)
    expect(svg).toMatch(/>7<\/text>/)
  })

  it('has a job\'s tree as a band below the lanes', () => {
    const svg = draw({ tree: { links: [[0, 1]], root: 1 } })
    expect(svg.indexOf('stroke-width="16"')).toBeGreaterThan(0)
    expect(svg.indexOf('stroke-width="16"')).toBeLessThan(svg.indexOf('M100 101.1'))
    expect(draw({ tree: null })).not.toContain('stroke-width="16"')
  })

  it('has no colour when it is stale', () => {
    expect(draw({ planes: planes(250, 250, 0, 0, 0, 0), stale: true })).not.toContain('#8c0f24')
  })

  it('writes names as text', () => {
    const svg = draw({})
    expect(svg).toContain('&lt;b&gt;&amp;&quot;a</text>')
    expect(svg).not.toContain('<b>')
  })

  it('dots the path that is left and draws the new one bold', () => {
    const svg = draw({ highlight: { old: [0, 1], new: [1, 0] } })
    expect(svg).toMatch(/d="M100 100L300 100"[^>]*stroke-dasharray="0.1 9"/)
    expect(svg).toMatch(/d="M300 100L100 100"[^>]*stroke="#0b62c4" stroke-width="5"/)
  })
})
