// What the page tells the worker that draws, and what it hears back.

import type { Places } from '../fabric'
import type { Topology } from '../stream/types'
import type { Size, View } from './geometry'
import type { Picture } from './painter'

export type DrawOrder =
  | { kind: 'canvas'; canvas: OffscreenCanvas }
  | { kind: 'topology'; topology: Topology; matrix: boolean }
  | { kind: 'places'; places: Places }
  | { kind: 'picture'; picture: Picture }
  | { kind: 'view'; view: View; size: Size; ratio: number }
  | { kind: 'png' }
  | { kind: 'svg' }

export type Drawn = { kind: 'drawn'; view: View } | { kind: 'png'; blob: Blob } | { kind: 'svg'; text: string }
