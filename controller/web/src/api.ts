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
