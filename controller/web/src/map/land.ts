// Coastlines of Natural Earth (world-atlas, 1:110m): TopoJSON whose arcs are quantised differences.

import type { Box } from './geometry'

interface Topojson {
  arcs: number[][][]
  transform: { scale: [number, number]; translate: [number, number] }
  objects: { land: { geometries: { type: string; arcs: number[][][] | number[][] }[] } }
}

function arcPoints(topology: Topojson, index: number): [number, number][] {
  const { scale, translate } = topology.transform
  let x = 0
  let y = 0
  const points = topology.arcs[index < 0 ? ~index : index].map(([dx, dy]): [number, number] => {
    x += dx
    y += dy
    return [x * scale[0] + translate[0], y * scale[1] + translate[1]]
  })
  return index < 0 ? points.reverse() : points
}

/** A ring that crosses the 180th meridian goes on beyond it, instead of back around the world. */
function unwrapped(points: [number, number][]): [number, number][] {
  let turn = 0
  return points.map(([x, y], i) => {
    const step = i === 0 ? 0 : x - points[i - 1][0]
    if (Math.abs(step) > 180) turn -= 360 * Math.sign(step)
    return [x + turn, y]
  })
}

/** Rings of longitude and latitude, those that come near a box of the map's coordinates (y is minus latitude). */
export function rings(topology: unknown, box: Box): Float32Array[] {
  const atlas = topology as Topojson
  const found: Float32Array[] = []
  for (const geometry of atlas.objects.land.geometries) {
    const polygons = (geometry.type === 'Polygon' ? [geometry.arcs] : geometry.arcs) as number[][][]
    for (const ring of polygons.flat()) {
      const points = unwrapped(ring.flatMap((index, i) => arcPoints(atlas, index).slice(i === 0 ? 0 : 1)))
      const xs = points.map((point) => point[0])
      const ys = points.map((point) => -point[1])
      const apart = Math.max(...xs) < box[0] || Math.min(...xs) > box[2] || Math.max(...ys) < box[1] || Math.min(...ys) > box[3]
      if (!apart) found.push(Float32Array.from(points.flat()))
    }
  }
  return found
}
