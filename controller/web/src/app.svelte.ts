// What the page knows: who is signed in, what the stream said last, which time and object one looks at.

import { get, Problem, signIn, type Me } from './api'
import { Fabric } from './fabric'
import type { Figure } from './map/ramp'
import { codeOf, formatRoute, parseRoute, type Route, type Selection, type ViewName } from './route'
import { openLive, openReplay, type Stream } from './stream/client'
import type { Connection, FabricEvent, FlowKey, Heartbeat, Hello, Message, Move, Notes } from './stream/types'

/** Figures older than this are grey. */
export const STALE_MS = 3000
const REPLAY_MS = 600_000
const RELOADED = 'millrace reloaded for'

export type Phase = 'starting' | 'sign-in' | 'in'
export type Clock = 'live' | 'playing' | 'paused'

export interface Done {
  text: string
  undo: (() => Promise<void>) | null
}

export type ThemeChoice = 'auto' | 'light' | 'dark'
const THEME = 'millrace theme'

function themeChoice(): ThemeChoice {
  const saved = localStorage.getItem(THEME)
  return saved === 'light' || saved === 'dark' ? saved : 'auto'
}

class App {
  phase = $state<Phase>('starting')
  me = $state.raw<Me | null>(null)
  problem = $state<string | null>(null)
  notice = $state<string | null>(null)
  /** The last change that was made here, and how to undo it. */
  done = $state.raw<Done | null>(null)
  route = $state.raw<Route>(parseRoute(location.hash))

  connection = $state.raw<Connection>({ state: 'connecting' })
  hello = $state.raw<Hello | null>(null)
  fabric = $state.raw<Fabric | null>(null)
  planes = $state.raw<Uint8Array | null>(null)
  columnsMs = $state<number | null>(null)
  events = $state.raw<FabricEvent[]>([])
  heartbeat = $state.raw<Heartbeat | null>(null)
  moves = $state.raw<Move[]>([])
  notes = $state.raw<Notes>({ uncertain: [], drained: [] })

  clock = $state<Clock>('live')
  speed = $state(1)
  /** First and last time, in ms, of the recording that the page shows; null: it shows a network that runs. */
  recorded = $state.raw<[number, number] | null>(null)
  replayProblem = $state<string | null>(null)
  /** The events that the time bar marks: a replay knows only those of its span. */
  marks = $state.raw<FabricEvent[]>([])
  now = $state(Date.now())
  figure = $state<Figure>('utilisation')
  help = $state(false)
  theme = $state<ThemeChoice>(themeChoice())
  #system = $state(matchMedia('(prefers-color-scheme: dark)').matches)
  dark = $derived(this.theme === 'auto' ? this.#system : this.theme === 'dark')
  /** Paths that the map shows bold and dotted, by names. */
  highlight = $state.raw<{ old: string[]; new: string[] } | null>(null)

  #offset = 0
  #stream: Stream | null = null
  #settle: ReturnType<typeof setTimeout> | undefined
  #shown: ReturnType<typeof setTimeout> | undefined
  #newestMove: string | null | undefined = undefined

  /** The server's time in ms, as this browser estimates it. */
  serverNow = $derived(this.now + this.#offset)
  ageMs = $derived(this.columnsMs === null ? null : this.serverNow - this.columnsMs)
  stale = $derived(this.clock === 'live' && (this.ageMs === null ? this.fabric !== null && this.planes === null : this.ageMs > STALE_MS))
  open = $derived(this.events.filter((event) => event.closed_ns === null))
  /** The time that questions about the past name; null is now. */
  at = $derived(this.clock === 'live' ? null : (this.columnsMs ?? this.route.at))

  get view(): ViewName {
    return this.route.view
  }

  get selection(): Selection {
    return this.route.selection
  }

  async start(): Promise<void> {
    const code = codeOf(location.hash)
    if (code !== null) {
      // Out of the address before anything else: it must not stay in the history.
      history.replaceState(null, '', `${location.pathname}#/now`)
      this.route = parseRoute(location.hash)
    }
    const reloaded = sessionStorage.getItem(RELOADED)
    if (reloaded === __BUILD__) this.notice = 'The server was upgraded: the page has reloaded itself.'
    addEventListener('hashchange', () => this.#follow())
    setInterval(() => (this.now = Date.now()), 500)
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', (event) => (this.#system = event.matches))
    this.#paint()
    if (code !== null) await this.signIn({ code })
    else await this.enter(true)
  }

  /** Whether the one who is signed in may change something; the past cannot be changed. */
  may(what: string): boolean {
    return this.clock === 'live' && (this.me?.may.includes(what) ?? false)
  }

  /** Says what was done, with a button that undoes it. */
  report(text: string, undo: (() => Promise<void>) | null = null): void {
    this.done = { text, undo }
  }

  async undo(): Promise<void> {
    const undo = this.done?.undo
    this.done = null
    if (!undo) return
    try {
      await undo()
    } catch (error) {
      this.notice = `It was not undone: ${(error as Error).message}`
    }
  }

  setTheme(theme: ThemeChoice): void {
    this.theme = theme
    localStorage.setItem(THEME, theme)
    this.#paint()
  }

  #paint(): void {
    if (this.theme === 'auto') delete document.documentElement.dataset.theme
    else document.documentElement.dataset.theme = this.theme
  }

  async signIn(secret: { code: string } | { token: string }): Promise<void> {
    this.problem = null
    try {
      await signIn(secret)
      await this.enter(false)
    } catch (error) {
      this.problem = (error as Error).message
      this.phase = 'sign-in'
    }
  }

  /** Opens the page for the session of the cookie; a first visit without one is no error. */
  async enter(first: boolean): Promise<void> {
    try {
      this.me = await get<Me>('/v1/view/me')
    } catch (error) {
      if (!(first && error instanceof Problem && error.status === 401)) this.problem = (error as Error).message
      this.phase = 'sign-in'
      return
    }
    this.#compareBuild(this.me.build)
    this.#offset = this.me.now_ns / 1e6 - Date.now()
    this.phase = 'in'
    this.recorded = this.me.recorded == null ? null : [this.me.recorded[0] / 1e6, this.me.recorded[1] / 1e6]
    if (this.route.at === null) this.goLive()
    else this.seek(this.route.at, 'paused')
  }

  leave(detail: string | null): void {
    this.#stream?.close()
    this.#stream = null
    this.me = null
    this.problem = detail
    this.phase = 'sign-in'
  }

  #compareBuild(build: string): void {
    if (__BUILD__ === 'development' || !build || build === __BUILD__) return
    if (sessionStorage.getItem(RELOADED) === build) {
      this.notice = 'This page is of another version than the server. Reload it without the cache.'
      return
    }
    sessionStorage.setItem(RELOADED, build)
    location.reload()
  }

  /** Shows the present; of a recording, its beginning. */
  goLive(): void {
    if (this.recorded !== null) {
      this.seek(this.recorded[0], 'playing')
      return
    }
    this.#switch()
    this.clock = 'live'
    this.#stream = openLive((message) => this.#receive(message))
    this.go({ at: null })
  }

  /** Shows the past from a time on; `paused` stops at its first picture. */
  seek(atMs: number, clock: 'playing' | 'paused'): void {
    this.#switch()
    this.clock = clock
    this.columnsMs = atMs
    this.planes = null // those of another time
    const end = this.recorded === null ? this.serverNow : this.recorded[1] + 1
    const to = Math.min(atMs + REPLAY_MS, Math.max(end, atMs + 1000))
    this.#stream = openReplay(atMs, to, this.speed, (message) => {
      this.#receive(message)
      if (message.kind === 'columns' && this.clock === 'paused' && this.#settle === undefined)
        this.#settle = setTimeout(() => this.#hold(), 300)
    })
    this.go({ at: atMs })
  }

  pause(): void {
    if (this.clock === 'paused') return
    this.#hold()
    this.clock = 'paused'
    this.go({ at: this.columnsMs ?? this.serverNow })
  }

  togglePlay(): void {
    if (this.clock === 'paused') this.seek(this.columnsMs ?? this.serverNow, 'playing')
    else this.pause()
  }

  setSpeed(speed: number): void {
    this.speed = speed
    if (this.clock === 'playing') this.seek(this.columnsMs ?? this.serverNow, 'playing')
  }

  /** Goes to the event before or after the time that is shown. */
  stepEvent(direction: -1 | 1): void {
    const here = this.columnsMs ?? this.serverNow
    const times = this.marks.map((event) => event.opened_ns / 1e6).sort((a, b) => a - b)
    const time = direction < 0 ? times.filter((t) => t < here - 1500).at(-1) : times.find((t) => t > here + 1500)
    if (time !== undefined) this.seek(time, 'paused')
    else if (direction > 0 && this.clock !== 'live') this.goLive()
  }

  #hold(): void {
    this.#stream?.close()
    this.#stream = null
  }

  #switch(): void {
    this.#hold()
    clearTimeout(this.#settle)
    this.#settle = undefined
    this.replayProblem = null
  }

  #receive(message: Message): void {
    switch (message.kind) {
      case 'connection':
        this.#connection(message.connection)
        break
      case 'hello':
        this.hello = message.hello
        this.#compareBuild(message.hello.build)
        break
      case 'topology':
        if (this.fabric?.topology.hash !== message.topology.hash) this.fabric = new Fabric(message.topology)
        this.planes = null
        break
      case 'columns':
        this.planes = message.planes
        this.columnsMs = message.timeMs
        this.now = Date.now()
        break
      case 'events':
        this.events = message.events
        if (this.clock === 'live' || this.marks.length === 0) this.marks = message.events
        break
      case 'heartbeat':
        this.heartbeat = message.heartbeat
        if (this.clock === 'live') this.#offset = message.heartbeat.now_ns / 1e6 - Date.now()
        this.now = Date.now()
        break
      case 'moves':
        this.#showMove(message.moves)
        this.moves = message.moves
        break
      case 'notes':
        this.notes = message.notes
        break
    }
  }

  /** A move that just came is on the map for three seconds, unless one asked for less motion. */
  #showMove(moves: Move[]): void {
    const newest = moves[0]?.id ?? null
    const isNew = this.#newestMove !== undefined && newest !== null && newest !== this.#newestMove
    this.#newestMove = newest
    if (!isNew || this.view !== 'map' || matchMedia('(prefers-reduced-motion: reduce)').matches) return
    this.show({ old: moves[0].old, new: moves[0].new })
    this.#shown = setTimeout(() => (this.highlight = null), 3000)
  }

  show(highlight: { old: string[]; new: string[] } | null): void {
    clearTimeout(this.#shown)
    this.highlight = highlight
  }

  #connection(connection: Connection): void {
    this.connection = connection
    if (connection.state === 'lost' && connection.status === 401) this.leave(connection.detail)
    else if (connection.state === 'lost' && this.clock !== 'live') {
      this.replayProblem = connection.detail
      this.clock = 'paused'
    } else if (connection.state === 'ended') {
      if (this.planes === null) this.replayProblem = 'the history has no figures of that time'
      this.clock = 'paused'
    }
  }

  /** Changes parts of the address. */
  go(change: Partial<Route>): void {
    const route = { ...this.route, ...change }
    if (change.view !== undefined && change.view !== this.route.view && change.extra === undefined) route.extra = {}
    const hash = formatRoute(route)
    this.route = route
    if (hash === location.hash) return
    // A time that moves on is no step of the history.
    if (Object.keys(change).join() === 'at') history.replaceState(null, '', hash)
    else history.pushState(null, '', hash)
  }

  select(selection: Selection): void {
    this.go({ selection })
  }

  selectLink(link: number): void {
    const fabric = this.fabric
    if (fabric !== null) this.select({ kind: 'link', a: fabric.names[fabric.tail(link)], b: fabric.names[fabric.head(link)] })
  }

  /** The directed link that is selected: the first of parallel ones. */
  get selectedLink(): number | null {
    const { selection, fabric } = this
    if (selection?.kind !== 'link' || fabric === null) return null
    const [a, b] = [fabric.node(selection.a), fabric.node(selection.b)]
    return a === null || b === null ? null : (fabric.between(a, b)[0] ?? null)
  }

  get selectedNode(): number | null {
    const { selection, fabric } = this
    return selection?.kind === 'node' && fabric !== null ? fabric.node(selection.name) : null
  }

  /** The absolute address of what one sees. */
  address(): string {
    const at = this.columnsMs ?? this.serverNow
    return new URL(formatRoute({ ...this.route, at }), location.href.split('#')[0]).href
  }

  #follow(): void {
    const before = this.route.at
    const code = codeOf(location.hash)
    if (code !== null) {
      history.replaceState(null, '', `${location.pathname}#/now`)
      void this.signIn({ code })
      return
    }
    this.route = parseRoute(location.hash)
    if (this.phase !== 'in' || this.route.at === before) return
    if (this.route.at === null) this.goLive()
    else this.seek(this.route.at, 'paused')
  }
}

export const app = new App()

export function whyRoute(flow: FlowKey): Partial<Route> {
  // Traffic between two hosts may be managed as a whole: then it has neither protocol nor ports.
  const stated = Object.entries(flow).filter(([key, value]) => value !== null && KEYS.includes(key))
  return { view: 'why', extra: Object.fromEntries(stated.map(([key, value]) => [key, String(value)])) }
}

const KEYS = ['src', 'dst', 'protocol', 'src_port', 'dst_port']
