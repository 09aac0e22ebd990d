// The topology, indexed: nodes by name, directed links 2c (a to b) and 2c + 1 (b to a) of cable c.

import type { Cable, Topology } from './stream/types'

export interface Pair {
  a: number
  b: number
  /** Cables that join the two nodes. */
  cables: number[]
}

/** Nodes with their x and y, in units of the layout. */
export type Places = [number, number, number][]

export class Fabric {
  readonly switches: number
  readonly nodes: number
  /** Directed links between switches. */
  readonly links: number
  readonly cables: Cable[]
  readonly access: Cable[]
  readonly x: Float64Array
  readonly y: Float64Array
  readonly names: string[]
  readonly pairs: Pair[]
  readonly mostBps: number
  /** Units of y a degree of latitude: a map by place is as true to shape as its middle. */
  readonly stretch: number
  readonly bounds: [number, number, number, number]
  readonly #index: Map<string, number>
  readonly #byEnds = new Map<number, number[]>()

  constructor(readonly topology: Topology) {
    const { switches, hosts } = topology
    this.switches = switches.length
    const nodes = [...switches, ...hosts]
    this.nodes = nodes.length
    this.names = nodes.map((node) => node.name)
    this.x = Float64Array.from(nodes, (node) => node.x)
    const [x0, y0, x1, y1] = topology.bounds
    this.stretch = topology.layout === 'place' ? 1 / Math.cos((Math.min(60, Math.abs(y0 + y1) / 2) * Math.PI) / 180) : 1
    this.y = Float64Array.from(nodes, (node) => node.y * this.stretch)
    this.bounds = [x0, y0 * this.stretch, x1, y1 * this.stretch]
    this.#index = new Map(this.names.map((name, i) => [name, i]))
    const between = (cable: Cable) => cable.a < this.switches && cable.b < this.switches
    this.cables = topology.cables.filter(between)
    this.access = topology.cables.filter((cable) => !between(cable))
    this.links = 2 * this.cables.length
    this.mostBps = this.cables.reduce((most, cable) => Math.max(most, cable.rate_bps), 1)
    const pairs = new Map<number, Pair>()
    this.cables.forEach((cable, c) => {
      const [low, high] = cable.a < cable.b ? [cable.a, cable.b] : [cable.b, cable.a]
      const key = low * this.nodes + high
      const pair = pairs.get(key)
      if (pair) pair.cables.push(c)
      else pairs.set(key, { a: low, b: high, cables: [c] })
      for (const link of [2 * c, 2 * c + 1]) {
        const ends = this.tail(link) * this.nodes + this.head(link)
        const links = this.#byEnds.get(ends)
        if (links) links.push(link)
        else this.#byEnds.set(ends, [link])
      }
    })
    this.pairs = [...pairs.values()]
  }

  node(name: string): number | null {
    return this.#index.get(name) ?? null
  }

  tail(link: number): number {
    const cable = this.cables[link >> 1]
    return link & 1 ? cable.b : cable.a
  }

  head(link: number): number {
    const cable = this.cables[link >> 1]
    return link & 1 ? cable.a : cable.b
  }

  linkName(link: number): string {
    return `${this.names[this.tail(link)]} → ${this.names[this.head(link)]}`
  }

  /** Directed links from one node to another: several of parallel cables, none if they are not neighbours. */
  between(from: number, to: number): number[] {
    return this.#byEnds.get(from * this.nodes + to) ?? []
  }

  linksOf(node: number): number[] {
    const links: number[] = []
    this.cables.forEach((cable, c) => {
      if (cable.a === node) links.push(2 * c)
      if (cable.b === node) links.push(2 * c + 1)
    })
    return links
  }

  hostsOf(node: number): number[] {
    const hosts: number[] = []
    this.topology.hosts.forEach((host, i) => {
      if (host.switch === node) hosts.push(this.switches + i)
    })
    return hosts
  }

  /** Puts nodes elsewhere. */
  place(places: Places): void {
    for (const [node, x, y] of places) if (node < this.nodes) [this.x[node], this.y[node]] = [x, y]
  }

  /** The nodes of a path by name, unknown names left out. */
  path(names: string[]): number[] {
    return names.map((name) => this.node(name)).filter((node) => node !== null)
  }
}
