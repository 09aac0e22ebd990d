// What the API server sends, as it sends it. Times are ns since 1970; as numbers they are exact to about 0.3 us.

export interface Hello {
  version: number
  build: string
  mode: 'live' | 'replay' | 'file'
  now_ns: number
}

export interface Switch {
  name: string
  x: number
  y: number
  layer: number | null
  place: [number, number] | null
}

export interface Host {
  name: string
  switch: number
  x: number
  y: number
}

/** Ends are node indices: switches first, then hosts. */
export interface Cable {
  a: number
  b: number
  rate_bps: number
  delay_ns: number
}

export interface Topology {
  name: string
  hash: string
  layout: 'place' | 'layers' | 'lengths'
  switches: Switch[]
  hosts: Host[]
  cables: Cable[]
  bounds: [number, number, number, number]
}

export interface FabricEvent {
  id: string
  rule: string
  severity: 'warning' | 'critical'
  subject: string
  link: number | null
  opened_ns: number
  closed_ns: number | null
  text: string
  note: { by: string; text: string; at_ns: number } | null
}

export interface Source {
  name: string
  age_ns: number | null
  problem: string | null
}

export interface Heartbeat {
  now_ns: number
  sources: Source[]
  flows: { shown: number; of: number } | null
}

export interface FlowKey {
  src: string
  dst: string
  protocol: number | string | null
  src_port: number | null
  dst_port: number | null
}

export interface Move {
  id: string
  at_ns: number
  flow: FlowKey
  text: string
  old: string[]
  new: string[]
  reason: string
  gain_ns: number | null
}

export interface Notes {
  uncertain: number[]
  drained: { link: number; element?: string; reason?: string; by?: string; since_ns?: number }[]
}

export type Connection =
  | { state: 'connecting' }
  | { state: 'open' }
  | { state: 'ended' }
  | { state: 'lost'; detail: string; status: number | null; retryMs: number | null }

/** What the worker that reads the stream tells the page. */
export type Message =
  | { kind: 'connection'; connection: Connection }
  | { kind: 'hello'; hello: Hello }
  | { kind: 'topology'; topology: Topology }
  | { kind: 'columns'; timeMs: number; planes: Uint8Array }
  | { kind: 'events'; events: FabricEvent[] }
  | { kind: 'heartbeat'; heartbeat: Heartbeat }
  | { kind: 'moves'; moves: Move[] }
  | { kind: 'notes'; notes: Notes }
