// Questions to the API server. A refusal is a Problem with the server's one line.

export class Problem extends Error {
  constructor(
    detail: string,
    readonly status: number
  ) {
    super(detail)
  }
}

export interface Me {
  name: string
  role: string
  version: string
  build: string
  now_ns: number
  may: string[]
  /** Times of the first and the last state, in ns, where the page shows a recording and nothing else. */
  recorded: [number, number] | null
}

export interface LinkAnswer {
  link: { a: string; b: string }
  at_ns: number
  figures: { name: string; value: number | null; unit: string; text: string }[]
  status: { condition: string; cause: string; age_ns: number } | null
  flows: (Partial<Flow> & { text: string; rate_bps: number | null; path: string[]; managed?: boolean })[]
  flows_of: number
  series: { at_ns: number[]; utilisation: (number | null)[]; delay_ns: (number | null)[]; loss: (number | null)[] } | null
  why_no_series: string | null
}

export interface Flow {
  src: string
  dst: string
  protocol: number | string | null
  src_port: number | null
  dst_port: number | null
  text: string
  path: string[]
  rate_bps: number | null
  delay_ns: number | null
  loss: number | null
}

export interface FlowsAnswer {
  flows: Flow[]
  of: number
}

export interface Alternative {
  path: string[]
  delay_ns: number | null
  delay_after_ns: number | null
  bottleneck_bps: number | null
  margin: number | null
  verdict: string
}

export interface WhyAnswer {
  flow: Flow | string
  path: string[] | null
  words: string[]
  /** The path that the flow is pinned to. */
  pinned?: string[] | null
  alternatives: Alternative[]
  decision: { old: string[]; new: string[]; reason: string; at_ns: number; gain_ns: number | null } | null
}

/** Waits that a worker caused by being last, in the collector's window. */
export interface Waits {
  last: number | null
  last_share: number | null
  wait_mean_ns: number | null
  wait_max_ns: number | null
  wait_caused_ns: number | null
}

export interface Worker extends Waits {
  host: string
  state: string | null
  heard_ns: number | null
  switch: string | null
}

export interface JobFigures {
  items: number | null
  items_per_s: number | null
  reported: number | null
  repeated: number | null
  repeated_per_item: number | null
  wait_mean_ns: number | null
  wait_p50_ns: number | null
  wait_p99_ns: number | null
  wait_max_ns: number | null
  cells_used: number | null
  cells: number | null
  age_ns: number | null
}

export interface Job extends JobFigures {
  id: string
  name: string
  number: number | null
  state: string | null
  epoch: number | null
  workers: number | null
  window: number | null
  capacity: number | null
  reason: string
  ended_ns: number | null
  root: string | null
  switches: string[]
  links: [string, string][]
  slowest: ({ name: string; switch: string } & Waits) | null
  at: ({ switch: string; is_leaf: boolean } & JobFigures)[]
  members: Worker[]
}

export interface JobsAnswer {
  at_ns: number
  jobs: Job[]
}

/** Costs between hosts: delay (ns), free bandwidth (bit/s), loss (a share), whether measured; null: none. */
export interface Costs {
  hosts: string[]
  of: number
  rows: ([number, number, number, boolean] | null)[][]
}

export interface SystemAnswer {
  controller: { switches: number; live: string[]; problems: { switch: string; problem: string }[]; pending_entries: number; settled: boolean; writes: number } | null
  reporters: { switch: string; received: number; lost: number }[]
  clocks: { switch: string; group: string; offset_ns: number; drift_ppb: number; uncertainty_ns: number }[]
  drops: { switch: string | null; ingress_port: number | null; egress_port: number | null; reason: string; packets: number; last_ns: number }[] | null
  why_no_drops: string | null
  why_no_audit: string | null
}

export interface Port {
  port: number
  peer: string
  peer_port: number
  rate_bps: number
  condition: string | null
  cause: string | null
  utilisation: number | null
  loss: number | null
}

export interface TableOf {
  table: string
  keys: string[]
  entries: number
  size: number
  packets: number | null
}

export interface Entry {
  match: string
  priority: number | null
  action: string | null
  packets: number | null
  bytes: number | null
}

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

async function request(method: Method, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<Response> {
  let response: Response
  try {
    response = await fetch(path, {
      method,
      credentials: 'same-origin',
      cache: 'no-store',
      headers: { accept: 'application/json', 'x-millrace': 'page', ...(body === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
      body: body === undefined ? undefined : JSON.stringify(body)
    })
  } catch {
    throw new Problem(method === 'GET' ? 'the server does not answer' : 'the server does not answer: it may have been done, or not', 0)
  }
  if (response.ok) return response
  const type = response.headers.get('content-type') ?? ''
  const problem = type.includes('json') ? await response.json() : null
  throw new Problem(typeof problem?.detail === 'string' ? problem.detail : `the server answered ${response.status}`, response.status)
}

export async function get<T>(path: string): Promise<T> {
  return (await request('GET', path)).json() as Promise<T>
}

/** Changes something; a Problem says why not. Its effects come by the stream, as everybody's do. */
export async function change<T = null>(method: Exclude<Method, 'GET'>, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<T> {
  const response = await request(method, path, body, headers)
  const isJson = (response.headers.get('content-type') ?? '').includes('json')
  return (isJson ? await response.json() : null) as T
}

export async function signIn(secret: { code: string } | { token: string }): Promise<void> {
  await request('POST', '/v1/view/session', secret)
}

export async function signOut(): Promise<void> {
  await request('DELETE', '/v1/view/session')
}

export function linkPath(a: string, b: string, atMs: number | null): string {
  const at = atMs === null ? '' : `?at=${Math.round(atMs)}000000`
  return `/v1/view/links/${encodeURIComponent(a)}/${encodeURIComponent(b)}${at}`
}
